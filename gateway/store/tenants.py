"""Rows of tenants and keys, in and out as the structs of gateway.tenants. Knows hashes only, never a key."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Row, func, insert, select, update

from gateway.store.database import Database
from gateway.store.tables import keys, tenants
from gateway.store.versions import bump
from gateway.tenants.types import Key, Limits, Principal, Tenant

_LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
_OWN = ("name", "baseline_model", "default_max_tokens", "capture", "disabled")


class KeyRow(msgspec.Struct, frozen=True):
    """A key as the lists show it."""

    key: Key
    tenant_name: str
    created_at: datetime


async def insert_tenant(database: Database, tenant: Tenant) -> None:
    """Raises DuplicateRow when the name is taken."""
    async with database.write() as connection:
        row = {"id": tenant.id, **_tenant_values(tenant), "created_at": datetime.now(UTC)}
        await connection.execute(insert(tenants).values(row))
        await bump(connection, "tenants")


async def insert_tenant_with_key(database: Database, tenant: Tenant, key: Key, key_hash: str) -> None:
    """Both or neither. Raises DuplicateRow when the name is taken."""
    now = datetime.now(UTC)
    async with database.write() as connection:
        await connection.execute(insert(tenants).values(id=tenant.id, **_tenant_values(tenant), created_at=now))
        await connection.execute(insert(keys).values(**_key_values(key), hash=key_hash, created_at=now))
        await bump(connection, "tenants")


async def update_tenant(database: Database, tenant: Tenant) -> bool:
    """Writes every field of the tenant with this id; False when there is none. Raises DuplicateRow."""
    async with database.write() as connection:
        found = await connection.execute(
            update(tenants).where(tenants.c.id == tenant.id).values(**_tenant_values(tenant))
        )
        await bump(connection, "tenants")
        return found.rowcount > 0


async def select_tenants(database: Database) -> list[Tenant]:
    async with database.read() as connection:
        rows = await connection.execute(select(tenants).order_by(tenants.c.name))
        return [_tenant(row) for row in rows]


async def select_tenant(database: Database, name: str) -> Tenant | None:
    async with database.read() as connection:
        row = (await connection.execute(select(tenants).where(tenants.c.name == name))).first()
        return _tenant(row) if row is not None else None


async def insert_key(database: Database, key: Key, key_hash: str) -> None:
    """Raises DuplicateRow when the tenant has a key of this name."""
    async with database.write() as connection:
        await connection.execute(insert(keys).values(**_key_values(key), hash=key_hash, created_at=datetime.now(UTC)))
        await bump(connection, "tenants")


async def set_key_disabled(database: Database, key_id: str, disabled: bool) -> bool:
    """False when there is no such key."""
    async with database.write() as connection:
        found = await connection.execute(update(keys).where(keys.c.id == key_id).values(disabled=disabled))
        await bump(connection, "tenants")
        return found.rowcount > 0


async def select_keys(database: Database, tenant_id: str | None = None) -> list[KeyRow]:
    query = select(keys, tenants.c.name.label("tenant_name")).join(tenants, keys.c.tenant_id == tenants.c.id)
    if tenant_id is not None:
        query = query.where(keys.c.tenant_id == tenant_id)
    async with database.read() as connection:
        rows = await connection.execute(query.order_by(tenants.c.name, keys.c.created_at, keys.c.id))
        return [KeyRow(_key(row), row.tenant_name, row.created_at) for row in rows]


async def select_principals(database: Database) -> list[tuple[str, Principal]]:
    """Every key's hash (hex) and whom it stands for, disabled ones too."""
    query = select(tenants, *(column.label(f"key_{column.name}") for column in keys.c)).join(
        keys, keys.c.tenant_id == tenants.c.id
    )
    known: dict[str, Tenant] = {}  # one struct a tenant, however many keys it has
    async with database.read() as connection:
        found: list[tuple[str, Principal]] = []
        for row in await connection.execute(query):
            tenant = known.get(row.id)
            if tenant is None:
                tenant = known[row.id] = _tenant(row)
            key = Key(
                id=row.key_id,
                tenant_id=row.id,
                name=row.key_name,
                prefix=row.key_prefix,
                disabled=row.key_disabled,
            )
            found.append((row.key_hash, Principal(tenant=tenant, key=key)))
        return found


async def count_tenants(database: Database) -> int:
    async with database.read() as connection:
        return int(await connection.scalar(select(func.count()).select_from(tenants)) or 0)


def _tenant(row: Row[Any]) -> Tenant:
    values = {name: getattr(row, name) for name in _OWN}
    limits = Limits(**{name: getattr(row, name) for name in _LIMITS})
    return Tenant(id=row.id, limits=limits, **values)


def _tenant_values(tenant: Tenant) -> dict[str, Any]:
    return {name: getattr(tenant, name) for name in _OWN} | {name: getattr(tenant.limits, name) for name in _LIMITS}


def _key(row: Row[Any]) -> Key:
    return Key(id=row.id, tenant_id=row.tenant_id, name=row.name, prefix=row.prefix, disabled=row.disabled)


def _key_values(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant_id": key.tenant_id,
        "name": key.name,
        "prefix": key.prefix,
        "disabled": key.disabled,
    }
