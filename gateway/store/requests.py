"""Requests and their attempts out of the books, newest first, a page at a time."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import select

from gateway.store.database import Database
from gateway.store.ledger_tables import attempts, requests


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request, whatever became of it. Fields are the table's columns (docs/ledger.md)."""

    id: str
    tenant_id: str
    key_id: str
    endpoint: str
    requested_model: str
    model: str | None
    provider: str | None
    tier: str | None
    stream: bool
    started_at: datetime
    status: str
    http_status: int
    error_code: str | None
    cache: str
    cache_reason: str
    cache_entry: str | None
    similarity: float | None
    route_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    estimated: bool
    cost_nanousd: int
    baseline_model: str | None
    baseline_cost_nanousd: int | None
    saved_by_cache_nanousd: int
    saved_by_routing_nanousd: int
    ttft_ms: float | None
    latency_ms: float
    namespace: str | None
    user: str | None
    config_hash: str


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a backend for a request; `attempt` counts from 0."""

    id: str
    attempt: int
    model: str
    provider: str
    upstream_model: str
    started_at: datetime
    status: str
    http_status: int | None
    error_code: str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    estimated: bool
    cost_nanousd: int
    ttft_ms: float | None
    latency_ms: float


EQUAL = ("tenant_id", "key_id", "endpoint", "model", "tier", "status", "cache", "user")  # columns to filter by


async def select_requests(
    database: Database,
    equal: Mapping[str, str],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    before_id: str | None = None,
    limit: int = 50,
) -> list[RequestRow]:
    """Newest first. `equal`: by column, of EQUAL; `since` inclusive, `until` exclusive; `before_id`: go on there."""
    query = select(*(requests.c[name] for name in RequestRow.__struct_fields__))
    for name, wanted in equal.items():
        assert name in EQUAL
        query = query.where(requests.c[name] == wanted)
    if since is not None:
        query = query.where(requests.c.started_at >= since)
    if until is not None:
        query = query.where(requests.c.started_at < until)
    if before_id is not None:
        query = query.where(requests.c.id < before_id)
    async with database.read() as connection:
        rows = await connection.execute(query.order_by(requests.c.id.desc()).limit(limit))
        return [_filled(RequestRow, row._mapping) for row in rows]


async def select_request(database: Database, request_id: str) -> tuple[RequestRow, list[AttemptRow]] | None:
    """With its attempts in order."""
    whole = select(*(requests.c[name] for name in RequestRow.__struct_fields__)).where(requests.c.id == request_id)
    parts = select(*(attempts.c[name] for name in AttemptRow.__struct_fields__)).order_by(attempts.c.attempt)
    async with database.read() as connection:
        row = (await connection.execute(whole)).first()
        if row is None:
            return None
        calls = await connection.execute(parts.where(attempts.c.request_id == request_id))
        return _filled(RequestRow, row._mapping), [_filled(AttemptRow, call._mapping) for call in calls]


def _filled(struct: type[Any], row: Mapping[Any, Any]) -> Any:
    return struct(**{name: row[name] for name in struct.__struct_fields__})
