"""The tables of the ledger, beside those of `tables`.

Money is integer nano-dollars. Requests carry no foreign key to tenants on purpose: an entry of the ledger must never be
refused.
"""

from collections.abc import Iterator

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from gateway.store.tables import UtcDateTime, metadata

__all__ = ["attempts", "decisions", "metadata", "prices", "requests"]


def _usage_columns() -> Iterator[Column[int] | Column[bool]]:
    """What a request or an attempt used."""
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens"):
        yield Column(name, BigInteger, nullable=False)
    for name in ("cache_write_tokens", "compute_us"):
        yield Column(name, BigInteger, nullable=False, server_default="0")
    yield Column("estimated", Boolean, nullable=False)


prices = Table(
    "prices",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("model", Text, nullable=False),
    Column("valid_from", UtcDateTime, nullable=False),
    Column("input_nanousd_per_mtok", BigInteger, nullable=False),
    Column("output_nanousd_per_mtok", BigInteger, nullable=False),
    Column("cached_input_nanousd_per_mtok", BigInteger, nullable=False),
    Column("cache_write_input_nanousd_per_mtok", BigInteger),  # null: as input
    Column("reasoning_output_nanousd_per_mtok", BigInteger),  # null: as output
    Column("nanousd_per_hour", BigInteger),  # of an engine's time; the tokens cost nothing then
    Column("source", String(16), nullable=False),  # config, operator, import
    UniqueConstraint("model", "valid_from"),
)

requests = Table(
    "requests",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(32), nullable=False),
    Column("key_id", String(32), nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("requested_model", Text, nullable=False),
    Column("model", Text),
    Column("provider", Text),
    Column("tier", Text),
    Column("stream", Boolean, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("status", String(16), nullable=False),
    Column("http_status", Integer, nullable=False),
    Column("error_code", Text),
    Column("cache", String(16), nullable=False),
    Column("cache_reason", Text, nullable=False),
    Column("cache_entry", Text),
    Column("similarity", Double),
    Column("route_reason", Text, nullable=False),
    *_usage_columns(),
    Column("cost_nanousd", BigInteger, nullable=False),
    Column("baseline_model", Text),
    Column("baseline_cost_nanousd", BigInteger),
    Column("saved_by_cache_nanousd", BigInteger, nullable=False),
    Column("saved_by_routing_nanousd", BigInteger, nullable=False),
    Column("ttft_ms", Double),
    Column("latency_ms", Double, nullable=False),
    Column("namespace", Text),
    Column("user", Text),
    Column("config_hash", String(64), nullable=False),
    Column("batch_id", String(64)),  # the batch that the request was a line of
    Index(None, "started_at"),
    Index(None, "tenant_id", "started_at"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("request_id", String(32), ForeignKey("requests.id"), nullable=False, index=True),
    Column("attempt", Integer, nullable=False),  # 0, 1, ... within the request
    Column("model", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("upstream_model", Text, nullable=False),
    Column("started_at", UtcDateTime, nullable=False, index=True),
    Column("status", String(16), nullable=False),
    Column("http_status", Integer),
    Column("error_code", Text),
    *_usage_columns(),
    Column("cost_nanousd", BigInteger, nullable=False),
    Column("ttft_ms", Double),
    Column("latency_ms", Double, nullable=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("request_id", String(32), ForeignKey("requests.id"), primary_key=True),
    Column("tier", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("confidence", Double),
    Column("task", Text),
    Column("signals", Text, nullable=False),  # JSON
    Column("embedding", LargeBinary),  # float16, little-endian
    Column("text", Text),
)
