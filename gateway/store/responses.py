"""Rows of stored responses. Every look-up names the tenant: nobody finds another's."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import CTE, Row, delete, insert, literal, select, update

from gateway.responses.types import StoredResponse
from gateway.store.database import Database
from gateway.store.tables import responses
from gateway.wire.responses_api.response_object import ACTIVE

_TABLE = responses.c


async def insert_response(database: Database, response: StoredResponse, conversation: Sequence[str] = ()) -> None:
    """`conversation`: the ids of the turns before, which live as long as this one. Raises DuplicateRow."""
    async with database.write() as transaction:
        await transaction.execute(insert(responses).values(**_values(response)))
        if conversation:
            older = _TABLE.id.in_(conversation), _TABLE.tenant_id == response.tenant_id
            await transaction.execute(update(responses).where(*older).values(expires_at=response.expires_at))


async def finish_response(database: Database, response: StoredResponse) -> bool:
    """The end of a response that was running; False when it is gone or has ended otherwise."""
    values = {name: _values(response)[name] for name in ("status", "num_bytes", "body")}
    query = update(responses).where(_TABLE.id == response.id, _TABLE.status.in_(ACTIVE))
    async with database.write() as transaction:
        found = await transaction.execute(query.values(lease_until=None, **values))
        return found.rowcount > 0


async def select_response(database: Database, tenant_id: str, id: str, now: datetime) -> StoredResponse | None:
    query = select(responses).where(_TABLE.id == id, _TABLE.tenant_id == tenant_id, _TABLE.expires_at > now)
    async with database.read() as connection:
        row = (await connection.execute(query)).first()
        return None if row is None else _response(row)


async def measure_conversation(
    database: Database, tenant_id: str, id: str, now: datetime, max_turns: int
) -> tuple[int, int]:
    """(turns, bytes) of the conversation that ends with a response."""
    chain = _chain(tenant_id, id, now, max_turns)
    async with database.read() as connection:
        sizes = (await connection.execute(select(chain.c.num_bytes))).scalars().all()
        return len(sizes), sum(sizes)


async def select_conversation(
    database: Database, tenant_id: str, id: str, now: datetime, max_turns: int
) -> list[StoredResponse]:
    """The turns that end with a response, oldest first, as far back as they are there."""
    chain = _chain(tenant_id, id, now, max_turns)
    query = select(responses).join(chain, _TABLE.id == chain.c.id).order_by(chain.c.depth.desc())
    async with database.read() as connection:
        return [_response(row) for row in await connection.execute(query)]


async def delete_response(database: Database, tenant_id: str, id: str) -> bool:
    """False when there is none."""
    async with database.write() as transaction:
        found = await transaction.execute(delete(responses).where(_TABLE.id == id, _TABLE.tenant_id == tenant_id))
        return found.rowcount > 0


async def renew_leases(database: Database, ids: Sequence[str], until: datetime) -> set[str]:
    """Of these running responses, those that still are to run; the others were cancelled or deleted elsewhere."""
    mine = _TABLE.id.in_(ids), _TABLE.status.in_(ACTIVE)
    async with database.write() as transaction:
        await transaction.execute(update(responses).where(*mine).values(lease_until=until, status="in_progress"))
        return set((await transaction.execute(select(_TABLE.id).where(*mine))).scalars())


async def delete_expired(database: Database, now: datetime, limit: int) -> int:
    """How many went, `limit` at most: a long delete would keep every writer waiting."""
    some = select(_TABLE.id).where(_TABLE.expires_at <= now).limit(limit)
    async with database.write() as transaction:
        found = await transaction.execute(delete(responses).where(_TABLE.id.in_(some)))
        return found.rowcount


def _chain(tenant_id: str, id: str, now: datetime, max_turns: int) -> CTE:
    """A response and those before it, `depth` counting backwards."""
    own = _TABLE.tenant_id == tenant_id, _TABLE.expires_at > now
    columns = _TABLE.id, _TABLE.previous_id, _TABLE.num_bytes
    chain = select(*columns, literal(0).label("depth")).where(_TABLE.id == id, *own).cte("chain", recursive=True)
    deeper = chain.c.depth + 1
    return chain.union_all(
        select(*columns, deeper).join(chain, _TABLE.id == chain.c.previous_id).where(*own, deeper < max_turns)
    )


def _values(response: StoredResponse) -> dict[str, Any]:
    return {
        "id": response.id,
        "tenant_id": response.tenant_id,
        "previous_id": response.previous_id,
        "status": response.status,
        "background": response.background,
        "created_at": response.created_at,
        "expires_at": response.expires_at,
        "lease_until": response.lease_until,
        "num_bytes": response.num_bytes,
        "input": response.input.decode(),
        "body": response.body.decode(),
    }


def _response(row: Row[Any]) -> StoredResponse:
    return StoredResponse(
        id=row.id,
        tenant_id=row.tenant_id,
        previous_id=row.previous_id,
        status=row.status,
        background=row.background,
        created_at=row.created_at,
        expires_at=row.expires_at,
        lease_until=row.lease_until,
        input=row.input.encode(),
        body=row.body.encode(),
    )
