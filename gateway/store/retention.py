"""What is taken out of the tables, a bounded number of rows at a time: a long delete keeps every writer waiting."""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Table, delete, or_, select, update

from gateway.store.database import Database
from gateway.store.file_tables import batch_results, batches, file_parts, files
from gateway.store.ledger_tables import decisions, requests
from gateway.store.tables import responses

AT_A_TIME = 500


async def delete_decisions(
    database: Database, before_id: str, *, of: str | None = None, but_of: Collection[str] = ()
) -> int:
    """Of requests whose id is below: ids sort by time. `of`: one tenant's; `but_of`: all but these tenants'."""
    mine = requests.c.tenant_id == of if of is not None else requests.c.tenant_id.not_in(list(but_of))
    old = decisions.c.request_id < before_id
    some = select(decisions.c.request_id).join(requests, requests.c.id == decisions.c.request_id).where(old, mine)
    async with database.write() as transaction:
        found = await transaction.execute(
            delete(decisions).where(decisions.c.request_id.in_(some.order_by(decisions.c.request_id).limit(AT_A_TIME)))
        )
        return found.rowcount


async def forget_request_texts(database: Database, tenant_id: str) -> int:
    """What clients wrote into `user` and the namespace; the money stays."""
    told = or_(requests.c.user.is_not(None), requests.c.namespace.is_not(None))
    some = select(requests.c.id).where(requests.c.tenant_id == tenant_id, told).limit(AT_A_TIME)
    async with database.write() as transaction:
        found = await transaction.execute(
            update(requests).where(requests.c.id.in_(some)).values(user=None, namespace=None)
        )
        return found.rowcount


async def forget_stored(database: Database, tenant_id: str) -> int:
    """Some of a tenant's responses, batches and files, the running ones too: their runners notice."""
    num_gone = 0
    for table, parts, owner in (
        (responses, None, None),
        (batches, batch_results, batch_results.c.batch_id),
        (files, file_parts, file_parts.c.file_id),
    ):
        num_gone += await _delete_some(database, table, tenant_id, parts, owner)
    return num_gone


async def _delete_some(
    database: Database, table: Table, tenant_id: str, parts: Table | None, owner: ColumnElement[str] | None
) -> int:
    async with database.write() as transaction:
        query = select(table.c.id).where(table.c.tenant_id == tenant_id).limit(AT_A_TIME)
        ids = list(await transaction.scalars(query))
        if parts is not None and owner is not None:
            await transaction.execute(delete(parts).where(owner.in_(ids)))
        await transaction.execute(delete(table).where(table.c.id.in_(ids)))
        return len(ids)
