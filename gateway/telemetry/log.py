"""Logging: one JSON line a request on stdout, everything else as text on stderr. Keys and passwords are masked."""

import logging
import sys
from datetime import UTC, datetime
from operator import attrgetter

import msgspec

from gateway.ledger.records import RequestRecord, Status
from gateway.money import dollars
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
    request_id: str
    tenant_id: str
    key_id: str
    endpoint: str
    requested_model: str
    status: Status
    http_status: int
    latency_ms: float
    cache: str
    cost_usd: str
    saved_usd: str = "0.0"
    error_code: str | None = None
    model: str | None = None
    provider: str | None = None
    tier: str | None = None
    route: str = ""
    cache_reason: str = ""
    similarity: float | None = None
    stream: bool = False
    ttft_ms: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    usage_estimated: bool = False
    attempts: int = 0


class RefusalLine(msgspec.Struct, frozen=True):
    """A request that was turned away at the gate. It has no tenant: its key may be nobody's."""

    time: str
    request_id: str
    method: str
    path: str
    http_status: int
    error_code: str | None
    event: str = "refusal"


_AS_RECORDED = {  # the line's fields, and where they are in the record
    "request_id": "id",
    "tenant_id": "tenant_id",
    "key_id": "key_id",
    "endpoint": "endpoint",
    "requested_model": "requested_model",
    "status": "status",
    "http_status": "http_status",
    "cache": "cache",
    "error_code": "error_code",
    "model": "model",
    "provider": "provider",
    "tier": "tier",
    "route": "route_reason",
    "cache_reason": "cache_reason",
    "stream": "stream",
    "prompt_tokens": "usage.prompt_tokens",
    "completion_tokens": "usage.completion_tokens",
    "cached_tokens": "usage.cached_tokens",
    "usage_estimated": "usage.estimated",
}
_recorded = attrgetter(*_AS_RECORDED.values())
_encoder = msgspec.json.Encoder()
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
    """Writes the request's line. A reader that went away costs the line, never the request."""
    _write(_line(record))


def log_refusal(line: RefusalLine) -> None:
    _write(line)


def now() -> str:
    """As the lines write it: UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _write(line: msgspec.Struct) -> None:
    try:
        sys.stdout.buffer.write(_encoder.encode(line) + _newline)
        sys.stdout.buffer.flush()
    except (OSError, ValueError):  # a closed pipe, a closed file
        return


def _line(record: RequestRecord) -> RequestLine:
    similarity, ttft_ms = record.similarity, record.ttft_ms
    return RequestLine(
        **dict(zip(_AS_RECORDED, _recorded(record), strict=True)),
        time=datetime.fromtimestamp(record.started_at, UTC).isoformat("T", "milliseconds"),
        event="request",
        latency_ms=round(record.latency_ms, 3),
        cost_usd=dollars(record.cost_nanousd),
        saved_usd=dollars(record.saved_by_cache_nanousd + record.saved_by_routing_nanousd),
        similarity=None if similarity is None else round(similarity, 4),
        ttft_ms=None if ttft_ms is None else round(ttft_ms, 3),
        attempts=len(record.attempts),
    )
