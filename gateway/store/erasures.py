"""Rows that say what every gateway is to forget of its cache. Knows nothing of the cache itself."""

from datetime import UTC, datetime

import msgspec
from sqlalchemy import delete, insert, select

from gateway.ids import new_id
from gateway.store.database import Database, Transaction
from gateway.store.tables import cache_erasures
from gateway.store.versions import bump

MAX_ENTRIES = 10_000  # a cache remembers no more, either


class Erasure(msgspec.Struct, frozen=True):
    """One entry, or all that was stored for a tenant before this moment; of all tenants where both are None."""

    tenant_id: str | None
    entry_id: str | None
    erased_at: datetime


async def insert_erasure(transaction: Transaction, tenant_id: str | None, entry_id: str | None) -> None:
    """Takes the place of an earlier one of the same; of entries, the newest are kept."""
    table = cache_erasures.c
    if entry_id is None:
        same = table.tenant_id.is_(None) if tenant_id is None else table.tenant_id == tenant_id
        await transaction.execute(delete(cache_erasures).where(table.entry_id.is_(None), same))
    values = {"id": new_id(), "tenant_id": tenant_id, "entry_id": entry_id, "erased_at": datetime.now(UTC)}
    await transaction.execute(insert(cache_erasures).values(values))
    entries = select(table.id).where(table.entry_id.is_not(None)).order_by(table.id.desc())
    oldest_kept = await transaction.scalar(entries.offset(MAX_ENTRIES - 1).limit(1))
    if oldest_kept is not None:
        await transaction.execute(delete(cache_erasures).where(table.id < oldest_kept, table.entry_id.is_not(None)))
    await bump(transaction, "erasures")


async def select_erasures(database: Database) -> list[tuple[str, Erasure]]:
    """(id, erasure), oldest first."""
    async with database.read() as connection:
        rows = await connection.execute(select(cache_erasures).order_by(cache_erasures.c.id))
        return [(row.id, Erasure(row.tenant_id, row.entry_id, row.erased_at)) for row in rows]
