"""The tables, as SQLAlchemy Core. Revisions under migrations/ create them; a test holds the two together.

Times are UTC, ids are UUIDv7 in hex. The ledger's tables are in `ledger_tables`, and so on by subject.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes in and out, stored as UTC; SQLite keeps no zone, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        found: datetime = value
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


versions = Table(  # a topic's number grows with every change, so that running gateways notice
    "versions",
    metadata,
    Column("topic", String(32), primary_key=True),
    Column("version", BigInteger, nullable=False),
)

tenants = Table(
    "tenants",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    Column("concurrent_requests", BigInteger),
    Column("baseline_model", Text),
    Column("default_max_tokens", BigInteger),
    Column("capture", String(16), nullable=False),
    Column("retention_days", BigInteger),  # of what is captured; 0: for ever
    Column("disabled", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

teams = Table(
    "teams",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(32), ForeignKey("tenants.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    Column("concurrent_requests", BigInteger),
    Column("disabled", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    UniqueConstraint("tenant_id", "name"),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(32), ForeignKey("tenants.id"), nullable=False),
    Column("team_id", String(32), ForeignKey("teams.id")),
    Column("name", Text, nullable=False),
    Column("prefix", String(16), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("previous_hash", String(64), unique=True),  # of the secret before a rotation, good until previous_until
    Column("previous_until", UtcDateTime),
    Column("models", Text),  # JSON arrays, each null where the key is not narrowed
    Column("tiers", Text),
    Column("endpoints", Text),
    Column("ip_ranges", Text),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    Column("concurrent_requests", BigInteger),
    Column("expires_at", UtcDateTime),
    Column("disabled", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    UniqueConstraint("tenant_id", "name"),
)

audit = Table(  # what administrators did; a row is written with the act itself and never changed
    "audit",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("at", UtcDateTime, nullable=False),
    Column("actor_kind", String(16), nullable=False),  # admin-key, cli, program
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),  # the address or host that it came from
    Column("action", String(64), nullable=False),  # "key.create"
    Column("tenant_id", String(32), index=True),
    Column("target_id", Text, nullable=False),
    Column("target", Text, nullable=False),  # its name at that time
    Column("before", Text),  # JSON, without secrets; null where there was nothing
    Column("after", Text),
)

cache_erasures = Table(  # what every gateway is to forget of its cache: one entry, a tenant's entries, or all
    "cache_erasures",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(32)),
    Column("entry_id", Text),
    Column("erased_at", UtcDateTime, nullable=False),
)

responses = Table(  # of the Responses API; gone at `expires_at`, or when a client deletes them
    "responses",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant_id", String(32), nullable=False, index=True),
    Column("previous_id", String(64)),  # the turn before, in a conversation
    Column("status", String(16), nullable=False),
    Column("background", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False, index=True),
    Column("lease_until", UtcDateTime),  # while it runs: its gateway is alive until then
    Column("num_bytes", BigInteger, nullable=False),  # of input and body
    Column("input", Text, nullable=False),  # JSON: the items that were put in
    Column("body", Text, nullable=False),  # JSON: the response object
)
