"""What an administrator does with tenants and keys; the command line calls these functions. Knows no SQL, no HTTP."""

import re

import msgspec

from gateway.ids import new_id
from gateway.store import tenants as store
from gateway.store.database import Database
from gateway.store.errors import DuplicateRow
from gateway.store.tenants import KeyRow
from gateway.tenants.errors import DuplicateName, InvalidName, UnknownName
from gateway.tenants.keys import display_prefix, hash_key, make_key
from gateway.tenants.types import Capture, Key, Limits, Tenant

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CAPTURES = ("off", "signals", "text")
_LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")


class NewKey(msgspec.Struct, frozen=True):
    """`secret` is the key itself: it exists nowhere else and is to be shown once."""

    key: Key
    secret: str

    def __repr__(self) -> str:  # so that no traceback or log ever holds the secret
        return f"NewKey({self.key!r})"


async def create_tenant(
    database: Database,
    name: str,
    *,
    limits: Limits | None = None,
    baseline_model: str | None = None,
    default_max_tokens: int | None = None,
    capture: Capture = "signals",
) -> Tenant:
    """Raises InvalidName, DuplicateName, or ValueError for a number or a word that makes no sense."""
    tenant = Tenant(
        id=new_id(),
        name=name,
        limits=limits or Limits(),
        baseline_model=baseline_model,
        default_max_tokens=default_max_tokens,
        capture=capture,
    )
    _check(tenant)
    try:
        await store.insert_tenant(database, tenant)
    except DuplicateRow as error:
        raise DuplicateName(f"there is a tenant named {name!r} already") from error
    return tenant


async def list_tenants(database: Database) -> list[Tenant]:
    """Sorted by name, disabled ones too."""
    return await store.select_tenants(database)


async def get_tenant(database: Database, name: str) -> Tenant:
    """Raises UnknownName."""
    tenant = await store.select_tenant(database, name)
    if tenant is None:
        known = ", ".join(each.name for each in await store.select_tenants(database)) or "none yet"
        raise UnknownName(f"there is no tenant named {name!r}; known: {known}")
    return tenant


async def change_tenant(database: Database, name: str, **changes: object) -> Tenant:
    """Sets the given fields of a Tenant, such as `limits` or `baseline_model`. Raises UnknownName too."""
    tenant = msgspec.structs.replace(await get_tenant(database, name), **changes)
    _check(tenant)
    await store.update_tenant(database, tenant)
    return tenant


async def disable_tenant(database: Database, name: str) -> Tenant:
    """Its keys are refused from now on; its books stay."""
    return await change_tenant(database, name, disabled=True)


async def enable_tenant(database: Database, name: str) -> Tenant:
    return await change_tenant(database, name, disabled=False)


async def create_key(database: Database, tenant_name: str, name: str = "") -> NewKey:
    """A key without a name is called after its prefix. Raises UnknownName, InvalidName, DuplicateName."""
    tenant = await get_tenant(database, tenant_name)
    made = _new_key(tenant.id, name)
    try:
        await store.insert_key(database, made.key, hash_key(made.secret).hex())
    except DuplicateRow as error:
        raise DuplicateName(f"the tenant {tenant_name!r} has a key named {made.key.name!r} already") from error
    return made


async def list_keys(database: Database, tenant_name: str | None = None) -> list[KeyRow]:
    """Sorted by tenant and age, disabled ones too. Raises UnknownName."""
    tenant_id = (await get_tenant(database, tenant_name)).id if tenant_name is not None else None
    return await store.select_keys(database, tenant_id)


async def disable_key(database: Database, reference: str, tenant_name: str | None = None) -> Key:
    """`reference` is a key's id, prefix or name, as far as that points at one key. Raises UnknownName."""
    return await _set_disabled(database, reference, tenant_name, True)


async def enable_key(database: Database, reference: str, tenant_name: str | None = None) -> Key:
    return await _set_disabled(database, reference, tenant_name, False)


async def create_first_tenant(database: Database, name: str = "demo") -> NewKey | None:
    """On an empty database: a tenant with a key. None when there is a tenant already, or another gateway was faster."""
    if await store.count_tenants(database):
        return None
    tenant = Tenant(id=new_id(), name=name)
    made = _new_key(tenant.id, "first")
    try:
        await store.insert_tenant_with_key(database, tenant, made.key, hash_key(made.secret).hex())
    except DuplicateRow:
        return None
    return made


async def _set_disabled(database: Database, reference: str, tenant_name: str | None, disabled: bool) -> Key:
    rows = await list_keys(database, tenant_name)
    found = [row.key for row in rows if reference in (row.key.id, row.key.prefix, row.key.name)]
    if not found:
        raise UnknownName("there is no such key; name it by its id, prefix or name (see `tollhouse keys list`)")
    if len(found) > 1:
        raise UnknownName(f"{len(found)} keys answer to that; use one's id: {', '.join(key.id for key in found)}")
    await store.set_key_disabled(database, found[0].id, disabled)
    return msgspec.structs.replace(found[0], disabled=disabled)


def _new_key(tenant_id: str, name: str) -> NewKey:
    secret = make_key()
    key = Key(id=new_id(), tenant_id=tenant_id, name=name or display_prefix(secret), prefix=display_prefix(secret))
    _check_name("key", key.name)
    return NewKey(key, secret)


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        rule = "1 to 64 letters, digits, dots, dashes or underscores, the first a letter or digit"
        raise InvalidName(f"a {what}'s name has {rule}")


def _check(tenant: Tenant) -> None:
    _check_name("tenant", tenant.name)
    if tenant.capture not in _CAPTURES:
        raise ValueError(f"capture is one of {', '.join(_CAPTURES)}, not {tenant.capture!r}")
    numbers = {name: getattr(tenant.limits, name) for name in _LIMITS}
    for name, number in (numbers | {"default_max_tokens": tenant.default_max_tokens}).items():
        if number is not None and number < 0:
            raise ValueError(f"{name} can't be negative")
