"""Teams: named groups of a tenant's keys, with limits that they share."""

import msgspec

from gateway.ids import new_id
from gateway.store import tenants as store
from gateway.store.database import Database
from gateway.store.errors import DuplicateRow
from gateway.tenants.audit import PROGRAM, Actor, acting
from gateway.tenants.errors import DuplicateName
from gateway.tenants.registry.changes import changed
from gateway.tenants.registry.checks import check_limits, check_name
from gateway.tenants.registry.find import find_team, find_tenant
from gateway.tenants.types import Limits, Team


class TeamRow(msgspec.Struct, frozen=True):
    """A team as the lists show it."""

    team: Team
    tenant_name: str
    num_keys: int


async def create_team(
    database: Database, tenant_name: str, name: str, *, limits: Limits | None = None, by: Actor = PROGRAM
) -> Team:
    """Raises UnknownName, InvalidName, DuplicateName, InvalidValue."""
    try:
        async with acting(database, by) as act:
            tenant = await find_tenant(act.transaction, tenant_name)
            team = Team(id=new_id(), tenant_id=tenant.id, name=name, limits=limits or Limits())
            _check(team)
            await store.insert_team(act.transaction, team)
            act.note("team.create", target=team, after=team)
    except DuplicateRow as error:
        raise _taken(tenant_name, name) from error
    return team


async def list_teams(database: Database, tenant_name: str | None = None) -> list[TeamRow]:
    """Sorted by tenant and name, disabled ones too. Raises UnknownName."""
    tenant_id = None
    if tenant_name is not None:
        async with database.read() as connection:
            tenant_id = (await find_tenant(connection, tenant_name)).id
    return [TeamRow(team, owner, count) for owner, team, count in await store.select_teams(database, tenant_id)]


async def get_team(database: Database, tenant_name: str, name: str) -> Team:
    """Raises UnknownName."""
    async with database.read() as connection:
        return await find_team(connection, await find_tenant(connection, tenant_name), name)


async def change_team(
    database: Database,
    tenant_name: str,
    name: str,
    /,
    *,
    by: Actor = PROGRAM,
    action: str = "team.change",
    **changes: object,
) -> Team:
    """Sets the given fields of a Team or its Limits. Raises UnknownName, InvalidName, DuplicateName, InvalidValue."""
    try:
        async with acting(database, by) as act:
            before = await find_team(act.transaction, await find_tenant(act.transaction, tenant_name), name)
            after = changed(before, changes)
            _check(after)
            await store.update_team(act.transaction, after)
            act.note(action, target=after, before=before, after=after)
    except DuplicateRow as error:
        raise _taken(tenant_name, str(changes["name"])) from error
    return after


async def disable_team(database: Database, tenant_name: str, name: str, *, by: Actor = PROGRAM) -> Team:
    """Its keys are refused from now on."""
    return await change_team(database, tenant_name, name, by=by, action="team.disable", disabled=True)


async def enable_team(database: Database, tenant_name: str, name: str, *, by: Actor = PROGRAM) -> Team:
    return await change_team(database, tenant_name, name, by=by, action="team.enable", disabled=False)


def _check(team: Team) -> None:
    check_name("team", team.name)
    check_limits(team.limits)


def _taken(tenant_name: str, name: str) -> DuplicateName:
    return DuplicateName(f"the tenant {tenant_name!r} has a team named {name!r} already")
