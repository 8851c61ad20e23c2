"""Sums over the requests table, for people. Knows nothing of how they are shown."""

from datetime import datetime
from typing import Any, Literal

import msgspec
from sqlalchemy import ColumnElement, case, func, literal_column, select

from gateway.store.database import Database
from gateway.store.ledger_tables import requests
from gateway.store.tables import tenants

By = Literal["day", "model", "tier"]
_SUMMED = ("_tokens", "_nanousd")
_HITS = ("hit-exact", "hit-semantic")


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant did on one day, with one model, or in one tier. `group` is "" where there was none."""

    tenant_id: str
    tenant_name: str
    group: str
    num_requests: int
    num_failed: int
    num_hits: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_nanousd: int
    saved_by_cache_nanousd: int
    saved_by_routing_nanousd: int


async def sum_costs(
    database: Database,
    by: By,
    *,
    tenant_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[CostRow]:
    """Sorted by tenant and group. `since` is inclusive, `until` exclusive. Raises StoreUnavailable."""
    group = _group(by, database.dialect)
    name = func.coalesce(tenants.c.name, requests.c.tenant_id)
    query = (
        select(
            requests.c.tenant_id,
            name.label("tenant_name"),
            group.label("label"),
            func.count().label("num_requests"),
            _count(requests.c.status != "ok").label("num_failed"),
            _count(requests.c.cache.in_(_HITS)).label("num_hits"),
            *(
                func.sum(requests.c[column]).label(column)
                for column in CostRow.__struct_fields__
                if column.endswith(_SUMMED)
            ),
        )
        .select_from(requests.outerjoin(tenants, tenants.c.id == requests.c.tenant_id))
        .group_by(requests.c.tenant_id, name, group)
        .order_by(name, group)
    )
    if tenant_id is not None:
        query = query.where(requests.c.tenant_id == tenant_id)
    if since is not None:
        query = query.where(requests.c.started_at >= since)
    if until is not None:
        query = query.where(requests.c.started_at < until)
    async with database.read() as connection:
        return [_row(row._mapping) for row in await connection.execute(query)]


def _group(by: By, dialect: str) -> ColumnElement[Any]:
    if by == "day":
        at: ColumnElement[Any] = requests.c.started_at
        if dialect == "postgresql":
            return func.to_char(func.timezone(literal_column("'UTC'"), at), literal_column("'YYYY-MM-DD'"))
        return func.date(at)
    return func.coalesce(requests.c[by], literal_column("''"))


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.count(case((condition, 1)))


def _row(row: Any) -> CostRow:
    sums = [name for name in CostRow.__struct_fields__ if name.startswith("num_") or name.endswith(_SUMMED)]
    values = {name: int(row[name]) for name in sums}
    return CostRow(tenant_id=row["tenant_id"], tenant_name=row["tenant_name"], group=str(row["label"]), **values)
