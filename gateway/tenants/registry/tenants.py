"""Tenants: made, changed, disabled and, once disabled, deleted."""

from typing import get_args

from gateway.ids import new_id
from gateway.store import tenants as store
from gateway.store.budgets import delete_budgets
from gateway.store.database import Database
from gateway.store.errors import DuplicateRow, RowRefused
from gateway.tenants.audit import PROGRAM, Actor, acting
from gateway.tenants.errors import DuplicateName, InvalidValue, StillInUse
from gateway.tenants.registry.changes import changed
from gateway.tenants.registry.checks import check_limits, check_name, check_number
from gateway.tenants.registry.find import find_tenant
from gateway.tenants.registry.keys import NewKey, add_key, new_key
from gateway.tenants.types import Capture, Limits, Tenant


async def create_tenant(
    database: Database,
    name: str,
    *,
    limits: Limits | None = None,
    baseline_model: str | None = None,
    default_max_tokens: int | None = None,
    capture: Capture = "signals",
    retention_days: int | None = None,
    by: Actor = PROGRAM,
) -> Tenant:
    """Raises InvalidName, DuplicateName, or InvalidValue for a number or a word that makes no sense."""
    tenant = Tenant(
        id=new_id(),
        name=name,
        limits=limits or Limits(),
        baseline_model=baseline_model,
        default_max_tokens=default_max_tokens,
        capture=capture,
        retention_days=retention_days,
    )
    _check(tenant)
    try:
        async with acting(database, by) as act:
            await store.insert_tenant(act.transaction, tenant)
            act.note("tenant.create", target=tenant, after=tenant)
    except DuplicateRow as error:
        raise DuplicateName(f"there is a tenant named {name!r} already") from error
    return tenant


async def list_tenants(database: Database) -> list[Tenant]:
    """Sorted by name, disabled ones too."""
    return await store.select_tenants(database)


async def get_tenant(database: Database, name: str) -> Tenant:
    """Raises UnknownName."""
    async with database.read() as connection:
        return await find_tenant(connection, name)


async def change_tenant(
    database: Database, name: str, /, *, by: Actor = PROGRAM, action: str = "tenant.change", **changes: object
) -> Tenant:
    """Sets the given fields of a Tenant or of its Limits, such as `baseline_model`. Raises UnknownName too."""
    try:
        async with acting(database, by) as act:
            before = await find_tenant(act.transaction, name)
            after = changed(before, changes)
            _check(after)
            await store.update_tenant(act.transaction, after)
            act.note(action, target=after, before=before, after=after)
    except DuplicateRow as error:
        raise DuplicateName(f"there is a tenant named {changes['name']!r} already") from error
    return after


async def disable_tenant(database: Database, name: str, *, by: Actor = PROGRAM) -> Tenant:
    """Its keys are refused from now on; its books stay."""
    return await change_tenant(database, name, by=by, action="tenant.disable", disabled=True)


async def enable_tenant(database: Database, name: str, *, by: Actor = PROGRAM) -> Tenant:
    return await change_tenant(database, name, by=by, action="tenant.enable", disabled=False)


async def delete_tenant(database: Database, name: str, *, by: Actor = PROGRAM) -> Tenant:
    """With its teams, keys and budgets; its books stay, under its id. Raises StillInUse unless it was disabled."""
    try:
        async with acting(database, by) as act:
            tenant = await find_tenant(act.transaction, name)
            if not tenant.disabled:
                raise StillInUse(f"the tenant {name!r} is in use; disable it first")
            await delete_budgets(act.transaction, tenant.id)
            await store.delete_tenant(act.transaction, tenant.id)
            act.note("tenant.delete", target=tenant, before=tenant)
    except RowRefused as error:
        raise StillInUse(
            f"the tenant {name!r} still owns something beside teams and keys: remove that first"
        ) from error
    return tenant


async def create_first_tenant(database: Database, name: str = "demo", *, by: Actor = PROGRAM) -> NewKey | None:
    """On an empty database: a tenant with a key. None when there is a tenant already, or another gateway was faster."""
    if await store.count_tenants(database):
        return None
    tenant = Tenant(id=new_id(), name=name)
    made = new_key(tenant.id, "first")
    try:
        async with acting(database, by) as act:
            await store.insert_tenant(act.transaction, tenant)
            act.note("tenant.create", target=tenant, after=tenant)
            await add_key(act, made)
    except DuplicateRow:
        return None
    return made


def _check(tenant: Tenant) -> None:
    check_name("tenant", tenant.name)
    if tenant.capture not in get_args(Capture):
        raise InvalidValue(f"capture is one of {', '.join(get_args(Capture))}, not {tenant.capture!r}")
    check_limits(tenant.limits)
    check_number("default_max_tokens", tenant.default_max_tokens)
    check_number("retention_days", tenant.retention_days)
