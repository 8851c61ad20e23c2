"""A tenant's texts, gone on request: what its prompts and answers said is forgotten, what they cost is not."""

from collections.abc import Awaitable, Callable

import msgspec

from gateway.ids import id_at
from gateway.store import retention
from gateway.store.database import Database
from gateway.store.erasures import insert_erasure
from gateway.tenants.audit import PROGRAM, Actor, acting
from gateway.tenants.registry.find import find_tenant


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of each kind."""

    decisions: int  # with embeddings and captured texts
    requests: int  # that lost their `user` and namespace
    stored: int  # responses, batches and files


async def erase_tenant(database: Database, name: str, *, by: Actor = PROGRAM) -> Erased:
    """All that is there by now, of a tenant in use or disabled. Raises UnknownName.

    Gateways forget its cached answers within a second. Begun again after a failure, it goes on where it stopped.
    """
    async with acting(database, by) as act:
        tenant = await find_tenant(act.transaction, name)
        await insert_erasure(act.transaction, tenant.id, None)
        act.note("tenant.erase", target=tenant)
    now = id_at()
    return Erased(
        decisions=await _all(lambda: retention.delete_decisions(database, now, of=tenant.id)),
        requests=await _all(lambda: retention.forget_request_texts(database, tenant.id)),
        stored=await _all(lambda: retention.forget_stored(database, tenant.id)),
    )


async def _all(some: Callable[[], Awaitable[int]]) -> int:
    num_gone = 0
    while num := await some():
        num_gone += num
    return num_gone
