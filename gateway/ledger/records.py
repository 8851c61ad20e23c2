"""What the books hold: one record a request, one an attempt, one a decision. Money is integer nano-dollars."""

from typing import Literal

import msgspec

from gateway.money import WHOLE_PPM
from gateway.wire.usage import Usage

Status = Literal["ok", "error", "cancelled", "lost"]  # lost: opened before a crash, never settled


class AttemptRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One call of one backend. Retries and fallbacks are attempts and cost money too."""

    id: str
    request_id: str
    index: int  # 0, 1, ... within the request
    model: str  # our name
    provider: str  # the provider's or the engine's name
    upstream_model: str
    started_at: float  # seconds since the epoch, UTC
    status: Status = "ok"
    http_status: int | None = None
    error_code: str | None = None
    usage: Usage = Usage()
    cost_nanousd: int = 0
    ttft_ms: float | None = None
    latency_ms: float = 0.0


class DecisionRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What cache and router learn from later. `embedding` is float16, little-endian; None under capture = "off"."""

    request_id: str
    tier: str
    reason: str
    confidence: float | None = None
    task: str | None = None
    signals: bytes = b"{}"  # JSON
    embedding: bytes | None = None
    text: str | None = None  # only under capture = "text"

    @property
    def signals_text(self) -> str:
        return self.signals.decode("utf-8", "replace")


class RequestRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    id: str
    tenant_id: str
    key_id: str
    endpoint: str  # "chat.completions", "completions", "embeddings"
    requested_model: str
    started_at: float
    model: str | None = None
    provider: str | None = None
    tier: str | None = None
    stream: bool = False
    status: Status = "ok"
    http_status: int = 200
    error_code: str | None = None
    cache: str = "bypass"  # hit-exact, hit-semantic, miss, bypass
    cache_reason: str = ""
    cache_entry: str | None = None
    similarity: float | None = None
    route_reason: str = ""
    usage: Usage = Usage()  # of the answer the client got; a hit reports the stored answer's
    cost_nanousd: int = 0  # the sum over the attempts; 0 on a hit
    baseline_model: str | None = None
    baseline_cost_nanousd: int | None = None  # the same tokens on the baseline model
    saved_by_cache_nanousd: int = 0
    saved_by_routing_nanousd: int = 0
    ttft_ms: float | None = None
    latency_ms: float = 0.0
    namespace: str | None = None
    user: str | None = None  # the request's own `user` field
    config_hash: str = ""
    batch_id: str | None = None  # the batch that it was a line of, ...
    price_ppm: int = WHOLE_PPM  # ... and what it pays then, in millionths of the price
    attempts: tuple[AttemptRecord, ...] = ()
    decision: DecisionRecord | None = None
