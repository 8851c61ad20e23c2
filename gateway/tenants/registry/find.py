"""From what an administrator writes to the tenant, team or key that is meant; inside a transaction or a read."""

from gateway.store import keys as key_store
from gateway.store import tenants as store
from gateway.store.database import Transaction
from gateway.store.keys import KeyRow
from gateway.tenants.errors import UnknownName
from gateway.tenants.types import Team, Tenant

_NAMED = 20  # how many a message names


async def find_tenant(connection: Transaction, name: str) -> Tenant:
    """Raises UnknownName."""
    tenant = await store.select_tenant(connection, name)
    if tenant is None:
        names = await store.select_names(connection, _NAMED + 1)
        known = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        raise UnknownName(f"there is no tenant named {name!r}; known: {known or 'none yet'}")
    return tenant


async def find_team(connection: Transaction, tenant: Tenant, name: str) -> Team:
    """Raises UnknownName."""
    team = await store.select_team(connection, tenant.id, name)
    if team is None:
        raise UnknownName(f"the tenant {tenant.name!r} has no team named {name!r} (see `tollhouse teams list`)")
    return team


async def find_key(connection: Transaction, reference: str, tenant_name: str | None) -> KeyRow:
    """By id, prefix or name, as far as that points at one key. Raises UnknownName.

    In a transaction its tenant is kept from others first, here as everywhere: whoever locked a key and then waited for
    its tenant would wait for ever for one who deletes them both.
    """
    if tenant_name is None:
        tenant_name = _the_one(await key_store.find_keys(connection, reference)).tenant_name
    tenant = await find_tenant(connection, tenant_name)
    return _the_one(await key_store.find_keys(connection, reference, tenant.id))


def _the_one(found: list[KeyRow]) -> KeyRow:
    if not found:
        raise UnknownName("there is no such key; name it by its id, prefix or name (see `tollhouse keys list`)")
    if len(found) > 1:
        ids = ", ".join(row.key.id for row in found[:_NAMED])
        raise UnknownName(f"{len(found)} keys answer to that; use one's id: {ids}")
    return found[0]
