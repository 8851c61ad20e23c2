"""Rows of tenants and teams, in and out as the structs of gateway.tenants. Writes are part of a transaction."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update

from gateway.store.database import Database, Transaction, kept_from_others
from gateway.store.tables import keys, teams, tenants
from gateway.store.versions import bump
from gateway.tenants.types import Limits, Team, Tenant

LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
_TENANT = ("name", "baseline_model", "default_max_tokens", "capture", "retention_days", "disabled")
_TEAM = ("tenant_id", "name", "disabled")


async def insert_tenant(transaction: Transaction, tenant: Tenant) -> None:
    """Raises DuplicateRow when the name is taken."""
    values = {"id": tenant.id, **_values(tenant, _TENANT), "created_at": datetime.now(UTC)}
    await transaction.execute(insert(tenants).values(values))
    await bump(transaction, "tenants")


async def update_tenant(transaction: Transaction, tenant: Tenant) -> None:
    """Writes every field of the tenant with this id. Raises DuplicateRow."""
    await transaction.execute(update(tenants).where(tenants.c.id == tenant.id).values(_values(tenant, _TENANT)))
    await bump(transaction, "tenants")


async def delete_tenant(transaction: Transaction, tenant_id: str) -> None:
    """With its teams and keys. Raises RowRefused while anything else belongs to it."""
    for table, column in ((keys, keys.c.tenant_id), (teams, teams.c.tenant_id), (tenants, tenants.c.id)):
        await transaction.execute(delete(table).where(column == tenant_id))
    await bump(transaction, "tenants")


async def select_tenants(database: Database) -> list[Tenant]:
    async with database.read() as connection:
        rows = await connection.execute(select(tenants).order_by(tenants.c.name))
        return [tenant_of(row) for row in rows]


async def select_tenant(transaction: Transaction, name: str) -> Tenant | None:
    """In a write it is kept from others, and with it all that belongs to it: its teams and keys need no lock."""
    query = kept_from_others(select(tenants).where(tenants.c.name == name), transaction, of=tenants)
    row = (await transaction.execute(query)).first()
    return tenant_of(row) if row is not None else None


async def select_names(connection: Transaction, limit: int) -> list[str]:
    """Of tenants, sorted."""
    return list(await connection.scalars(select(tenants.c.name).order_by(tenants.c.name).limit(limit)))


async def count_tenants(database: Database) -> int:
    async with database.read() as connection:
        return int(await connection.scalar(select(func.count()).select_from(tenants)) or 0)


async def insert_team(transaction: Transaction, team: Team) -> None:
    """Raises DuplicateRow when the tenant has a team of this name."""
    values = {"id": team.id, **_values(team, _TEAM), "created_at": datetime.now(UTC)}
    await transaction.execute(insert(teams).values(values))
    await bump(transaction, "tenants")


async def update_team(transaction: Transaction, team: Team) -> None:
    """Writes every field of the team with this id. Raises DuplicateRow."""
    await transaction.execute(update(teams).where(teams.c.id == team.id).values(_values(team, _TEAM)))
    await bump(transaction, "tenants")


async def select_team(transaction: Transaction, tenant_id: str, name: str) -> Team | None:
    query = select(teams).where(teams.c.tenant_id == tenant_id, teams.c.name == name)
    row = (await transaction.execute(query)).first()
    return team_of(row) if row is not None else None


async def select_teams(database: Database, tenant_id: str | None = None) -> list[tuple[str, Team, int]]:
    """(its tenant's name, the team, how many keys are in it), sorted by both names."""
    members = select(func.count()).where(keys.c.team_id == teams.c.id).scalar_subquery()
    query = select(teams, tenants.c.name.label("tenant_name"), members.label("num_keys")).join(tenants)
    if tenant_id is not None:
        query = query.where(teams.c.tenant_id == tenant_id)
    async with database.read() as connection:
        rows = await connection.execute(query.order_by(tenants.c.name, teams.c.name))
        return [(row.tenant_name, team_of(row), int(row.num_keys)) for row in rows]


def tenant_of(row: Row[Any]) -> Tenant:
    return Tenant(id=row.id, limits=limits_of(row), **{name: getattr(row, name) for name in _TENANT})


def team_of(row: Row[Any]) -> Team:
    return Team(id=row.id, limits=limits_of(row), **{name: getattr(row, name) for name in _TEAM})


def limits_of(row: Row[Any]) -> Limits:
    return Limits(**{name: getattr(row, name) for name in LIMITS})


def _values(owner: Tenant | Team, own: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(owner, name) for name in own} | {name: getattr(owner.limits, name) for name in LIMITS}
