"""Rows of batches and of the lines that are answered.

A batch is run by whoever holds its lease; what its runner writes is written only while it still does.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, or_, select, update

from gateway.batches.types import UNFINISHED, Batch, LeaseLost, Result
from gateway.files.types import StoredFile
from gateway.store.database import Database, Transaction
from gateway.store.file_tables import batch_results, batches
from gateway.store.files import finish_file

_BATCH = batches.c
_RESULT = batch_results.c


async def insert_batch(database: Database, batch: Batch) -> None:
    values = {name: getattr(batch, name) for name in Batch.__struct_fields__}
    async with database.write() as transaction:
        await transaction.execute(insert(batches).values(**values))


async def select_batch(database: Database, tenant_id: str, id: str) -> Batch | None:
    query = select(batches).where(_BATCH.id == id, _BATCH.tenant_id == tenant_id)
    async with database.read() as connection:
        row = (await connection.execute(query)).first()
        return None if row is None else _batch(row)


async def select_batches(database: Database, tenant_id: str, *, after: str | None, limit: int) -> list[Batch]:
    """A page of a tenant's batches, the newest first: ids sort by time."""
    query = select(batches).where(_BATCH.tenant_id == tenant_id).order_by(_BATCH.id.desc()).limit(limit)
    if after is not None:
        query = query.where(_BATCH.id < after)
    async with database.read() as connection:
        return [_batch(row) for row in await connection.execute(query)]


async def mark_cancelling(database: Database, tenant_id: str, id: str, now: datetime) -> None:
    """What has ended or is about to stays as it is."""
    mine = _BATCH.id == id, _BATCH.tenant_id == tenant_id, _BATCH.status.in_(("validating", "in_progress"))
    async with database.write() as transaction:
        await transaction.execute(update(batches).where(*mine).values(status="cancelling", cancelling_at=now))


async def claim_batch(
    database: Database, owner: str, now: datetime, until: datetime, busy_tenants: Collection[str]
) -> Batch | None:
    """The oldest unfinished batch that nobody runs, now leased to `owner`; of `busy_tenants` none."""
    free = or_(_BATCH.lease_until.is_(None), _BATCH.lease_until < now)
    waiting = select(batches).where(_BATCH.status.in_(UNFINISHED), free, _BATCH.tenant_id.not_in(list(busy_tenants)))
    async with database.write() as transaction:
        first = waiting.order_by(_BATCH.id).limit(1).with_for_update(skip_locked=True)
        row = (await transaction.execute(first)).first()
        if row is None:
            return None
        leased = update(batches).where(_BATCH.id == row.id).values(lease_owner=owner, lease_until=until)
        await transaction.execute(leased)
        return _batch(row)


async def renew_leases(database: Database, owner: str, ids: Sequence[str], until: datetime) -> dict[str, str]:
    """The status of each of these batches that is still its owner's."""
    mine = _BATCH.id.in_(ids), _BATCH.lease_owner == owner, _BATCH.status.in_(UNFINISHED)
    async with database.write() as transaction:
        await transaction.execute(update(batches).where(*mine).values(lease_until=until))
        rows = await transaction.execute(select(_BATCH.id, _BATCH.status).where(*mine))
        return {row.id: row.status for row in rows}


async def release_leases(database: Database, owner: str) -> None:
    """Another gateway may go on at once."""
    async with database.write() as transaction:
        mine = update(batches).where(_BATCH.lease_owner == owner)
        await transaction.execute(mine.values(lease_owner=None, lease_until=None))


async def update_batch(database: Database, owner: str, id: str, **values: Any) -> None:
    """Raises LeaseLost."""
    async with database.write() as transaction:
        await _update(transaction, owner, id, values)


async def begin_lines(database: Database, owner: str, id: str, num_lines: int, now: datetime) -> None:
    """The input file is sound; one that was cancelled meanwhile stays so. Raises LeaseLost."""
    async with database.write() as transaction:
        await _update(transaction, owner, id, {"num_lines": num_lines, "in_progress_at": now})
        begun = update(batches).where(_BATCH.id == id, _BATCH.status == "validating")
        await transaction.execute(begun.values(status="in_progress"))


async def insert_result(database: Database, owner: str, id: str, result: Result) -> None:
    """Once for each line. Raises LeaseLost."""
    count = _BATCH.num_completed if result.ok else _BATCH.num_failed
    async with database.write() as transaction:
        await _update(transaction, owner, id, {count.name: count + 1})
        row = {"batch_id": id, "line": result.line, "ok": result.ok, "answer": result.answer}
        await transaction.execute(insert(batch_results).values(**row))


async def select_answered(database: Database, id: str) -> set[int]:
    """The numbers of the lines that have their result."""
    async with database.read() as connection:
        return set((await connection.execute(select(_RESULT.line).where(_RESULT.batch_id == id))).scalars())


async def select_results(database: Database, id: str, *, ok: bool, after: int, limit: int) -> list[Result]:
    """In the order of the lines, those behind `after`."""
    query = select(batch_results).where(_RESULT.batch_id == id, _RESULT.ok.is_(ok), _RESULT.line > after)
    async with database.read() as connection:
        rows = await connection.execute(query.order_by(_RESULT.line).limit(limit))
        return [Result(row.line, row.ok, row.answer) for row in rows]


async def finish_batch(
    database: Database, owner: str, id: str, files: Sequence[StoredFile], values: dict[str, Any]
) -> None:
    """The end: its files appear, its results go, all at once or not at all. Raises LeaseLost."""
    async with database.write() as transaction:
        await _update(transaction, owner, id, {"lease_owner": None, "lease_until": None} | values)
        for file in files:
            await finish_file(transaction, file)
        await transaction.execute(delete(batch_results).where(_RESULT.batch_id == id))


async def _update(transaction: Transaction, owner: str, id: str, values: dict[str, Any]) -> None:
    found = await transaction.execute(
        update(batches).where(_BATCH.id == id, _BATCH.lease_owner == owner).values(**values)
    )
    if found.rowcount == 0:
        raise LeaseLost(f"the batch {id} is no longer this gateway's")


def _batch(row: Row[Any]) -> Batch:
    return Batch(**{name: getattr(row, name) for name in Batch.__struct_fields__})
