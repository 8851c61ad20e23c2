"""Logging: one JSON line a request on stdout, everything else as text on stderr. Keys and passwords are masked."""

import logging
import sys
import time
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter

import msgspec

from gateway.ledger.records import RequestRecord, Status
from gateway.money import dollars
from gateway.telemetry.lines import Lines
from gateway.telemetry.masking import MaskingFormatter

_QUIET = {  # libraries that narrate every request
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "huggingface_hub": logging.WARNING,
    "sentence_transformers": logging.WARNING,
    "transformers": logging.ERROR,
    "alembic": logging.WARNING,
    "faiss": logging.WARNING,
    "_granian": logging.ERROR,
    "asyncio": logging.WARNING,
}


class RequestLine(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What operators ask a log for. No texts, no keys, not the client's `user` field."""

    time: str
    event: str  # "request"
    request_id: str  # from here on as `_asked` takes them
    tenant_id: str
    key_id: str
    endpoint: str
    requested_model: str
    status: Status
    http_status: int
    cache: str
    latency_ms: float
    cost_usd: str
    saved_usd: str = "0.0"
    similarity: float | None = None
    ttft_ms: float | None = None
    attempts: int = 0
    error_code: str | None = None  # from here on as `_answered` takes them
    model: str | None = None
    provider: str | None = None
    tier: str | None = None
    route: str = ""
    cache_reason: str = ""
    stream: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    usage_estimated: bool = False


_asked = attrgetter("id", "tenant_id", "key_id", "endpoint", "requested_model", "status", "http_status", "cache")
_answered = attrgetter(
    *("error_code", "model", "provider", "tier", "route_reason", "cache_reason", "stream"),
    *("usage.prompt_tokens", "usage.completion_tokens", "usage.cached_tokens", "usage.estimated"),
)


class RefusalLine(msgspec.Struct, frozen=True):
    """A request that was turned away at the gate. It has no tenant: its key may be nobody's."""

    time: str
    request_id: str
    method: str
    path: str
    http_status: int
    error_code: str | None
    event: str = "refusal"


lines = Lines()
_encode = msgspec.json.Encoder().encode
_newline = b"\n"


def configure_logging(level: int = logging.INFO) -> None:
    """Once, at start. Replaces the root logger's handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(max(level, quiet))


def log_request(record: RequestRecord) -> None:
    """The request's line, written a moment later."""
    lines.put(_encode(_line(record)) + _newline)


def log_refusal(line: RefusalLine) -> None:
    lines.put(_encode(line) + _newline)
    lines.write()


def now() -> str:
    """As the lines write it: UTC, with milliseconds."""
    return _moment(time.time())


def _moment(seconds: float) -> str:
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{_second(whole)}.{milliseconds:03d}+00:00"


@lru_cache(maxsize=16)
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).isoformat()[:19]


def _line(record: RequestRecord) -> RequestLine:
    similarity, ttft_ms = record.similarity, record.ttft_ms
    values = (
        _moment(record.started_at),
        "request",
        *_asked(record),
        round(record.latency_ms, 3),
        dollars(record.cost_nanousd),
        dollars(record.saved_by_cache_nanousd + record.saved_by_routing_nanousd),
        None if similarity is None else round(similarity, 4),
        None if ttft_ms is None else round(ttft_ms, 3),
        len(record.attempts),
        *_answered(record),
    )
    return RequestLine(*values)
