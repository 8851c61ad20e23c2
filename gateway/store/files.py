"""Rows of files and their parts. Every look-up names the tenant: nobody finds another's."""

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, delete, func, insert, or_, select, update

from gateway.batches.types import UNFINISHED
from gateway.files.types import StoredFile
from gateway.store.database import Database, Transaction
from gateway.store.file_tables import batches, file_parts, files

Order = Literal["asc", "desc"]
_FILE = files.c
_PART = file_parts.c


async def insert_file(database: Database, file: StoredFile) -> None:
    """A file to come: its parts follow, and `finish_file`."""
    async with database.write() as transaction:
        await transaction.execute(insert(files).values(**_values(file), whole=False))


async def insert_part(database: Database, file_id: str, part: int, data: bytes) -> None:
    async with database.write() as transaction:
        await transaction.execute(insert(file_parts).values(file_id=file_id, part=part, data=data))


async def finish_file(transaction: Transaction, file: StoredFile) -> bool:
    """From now on it can be seen; False when it is gone."""
    found = await transaction.execute(update(files).where(_FILE.id == file.id).values(**_values(file), whole=True))
    return found.rowcount > 0


async def select_file(database: Database, tenant_id: str, id: str, now: datetime) -> StoredFile | None:
    query = select(files).where(_FILE.id == id, *_visible(tenant_id, now))
    async with database.read() as connection:
        row = (await connection.execute(query)).first()
        return None if row is None else _file(row)


async def select_files(
    database: Database,
    tenant_id: str,
    now: datetime,
    *,
    purpose: str | None,
    after: str | None,
    limit: int,
    order: Order,
) -> list[StoredFile]:
    """A page of a tenant's files by age: ids sort by time. `after`: the last id of the page before."""
    query = select(files).where(*_visible(tenant_id, now)).limit(limit)
    if purpose is not None:
        query = query.where(_FILE.purpose == purpose)
    if after is not None:
        query = query.where(_FILE.id > after if order == "asc" else _FILE.id < after)
    async with database.read() as connection:
        rows = await connection.execute(query.order_by(_FILE.id.asc() if order == "asc" else _FILE.id.desc()))
        return [_file(row) for row in rows]


async def select_part(database: Database, file_id: str, part: int) -> bytes | None:
    query = select(_PART.data).where(_PART.file_id == file_id, _PART.part == part)
    async with database.read() as connection:
        data: bytes | None = await connection.scalar(query)
        return data


async def sum_file_bytes(database: Database, tenant_id: str) -> int:
    """Of all files of a tenant, those that are being written included."""
    mine = select(_FILE.id).where(_FILE.tenant_id == tenant_id)
    query = select(func.coalesce(func.sum(func.length(_PART.data)), 0)).where(_PART.file_id.in_(mine))
    async with database.read() as connection:
        return int(await connection.scalar(query) or 0)


async def delete_file(database: Database, tenant_id: str, id: str) -> bool:
    """False when there is none."""
    async with database.write() as transaction:
        found = await transaction.execute(delete(files).where(_FILE.id == id, _FILE.tenant_id == tenant_id))
        if found.rowcount:
            await transaction.execute(delete(file_parts).where(_PART.file_id == id))
        return found.rowcount > 0


async def select_reader(database: Database, id: str) -> str | None:
    """A batch that has not ended and reads this file."""
    query = select(batches.c.id).where(batches.c.input_file_id == id, batches.c.status.in_(UNFINISHED)).limit(1)
    async with database.read() as connection:
        batch_id: str | None = await connection.scalar(query)
        return batch_id


async def select_dead_files(
    database: Database, now: datetime, begun_before: datetime, limit: int
) -> list[tuple[str, str]]:
    """(tenant, id) of files that have expired and nobody reads, and of those that were begun and never finished."""
    read = select(batches.c.input_file_id).where(batches.c.status.in_(UNFINISHED))
    expired = _FILE.expires_at <= now, _FILE.id.not_in(read)
    abandoned = _FILE.whole.is_(False), _FILE.created_at <= begun_before
    query = select(_FILE.tenant_id, _FILE.id).where(or_(expired[0] & expired[1], abandoned[0] & abandoned[1]))
    async with database.read() as connection:
        return [(row.tenant_id, row.id) for row in await connection.execute(query.limit(limit))]


def _visible(tenant_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    alive = or_(_FILE.expires_at.is_(None), _FILE.expires_at > now)
    return _FILE.tenant_id == tenant_id, _FILE.whole.is_(True), alive


def _values(file: StoredFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in StoredFile.__struct_fields__}


def _file(row: Row[Any]) -> StoredFile:
    return StoredFile(**{name: getattr(row, name) for name in StoredFile.__struct_fields__})
