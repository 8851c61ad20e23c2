"""Rows of the audit table: written once, with the act itself, and read newest first."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import insert, select

from gateway.ids import new_id
from gateway.store.database import Database, Transaction
from gateway.store.tables import audit, tenants


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, on what, when, from where. `before` and `after` hold no secrets; null where there was nothing."""

    id: str
    at: datetime
    actor_kind: str  # admin-key, cli, program
    actor: str
    source: str  # the address or host that it came from
    action: str  # "key.create"
    tenant_id: str | None
    tenant: str | None  # its name today
    target_id: str
    target: str  # its name then
    before: dict[str, Any] | None
    after: dict[str, Any] | None


async def insert_act(transaction: Transaction, *, before: bytes | None, after: bytes | None, **fields: Any) -> None:
    """The rest of an AuditRow's fields; id and time are made here."""
    states = {"before": before and before.decode(), "after": after and after.decode()}
    await transaction.execute(insert(audit).values(id=new_id(), at=datetime.now(UTC), **states, **fields))


async def select_acts(
    database: Database,
    *,
    tenant_id: str | None = None,
    action: str | None = None,
    target_id: str | None = None,
    before_id: str | None = None,
    limit: int = 100,
) -> list[AuditRow]:
    """Newest first, those before `before_id` (the last one of the page before). `action`: "key" for all of keys."""
    query = select(audit, tenants.c.name.label("tenant")).outerjoin(tenants, tenants.c.id == audit.c.tenant_id)
    for column, wanted in ((audit.c.tenant_id, tenant_id), (audit.c.target_id, target_id)):
        if wanted is not None:
            query = query.where(column == wanted)
    if action is not None:
        query = query.where((audit.c.action == action) | audit.c.action.startswith(f"{action}.", autoescape=True))
    if before_id is not None:
        query = query.where(audit.c.id < before_id)
    async with database.read() as connection:
        return [_row(row._mapping) for row in await connection.execute(query.order_by(audit.c.id.desc()).limit(limit))]


def _row(row: Any) -> AuditRow:
    values = {name: row[name] for name in AuditRow.__struct_fields__}
    states = {name: msgspec.json.decode(row[name]) if row[name] else None for name in ("before", "after")}
    return AuditRow(**(values | states))
