"""Rows of keys, in and out as the structs of gateway.tenants. Knows hashes only, never a key."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Row, Select, insert, select, update

from gateway.store.database import Database, Transaction
from gateway.store.tables import keys, teams, tenants
from gateway.store.tenants import LIMITS, limits_of, team_of, tenant_of
from gateway.store.versions import bump
from gateway.tenants.types import Key, Principal, Scope, Team, Tenant

_KEY = ("id", "tenant_id", "team_id", "name", "prefix", "expires_at", "disabled")


class KeyRow(msgspec.Struct, frozen=True):
    """A key as the lists show it. `previous_until`: until when the secret before its last rotation works, too."""

    key: Key
    tenant_name: str
    created_at: datetime
    team_name: str | None = None
    previous_until: datetime | None = None


class SecretRow(msgspec.Struct, frozen=True):
    """One secret, by its hash (hex), and whom it stands for; a key has two while a rotation overlaps."""

    hash: str
    principal: Principal
    replaced_at: datetime | None = None  # by another secret of the same key


async def insert_key(transaction: Transaction, key: Key, key_hash: str) -> None:
    """Raises DuplicateRow when the tenant has a key of this name."""
    await transaction.execute(insert(keys).values(**_values(key), hash=key_hash, created_at=datetime.now(UTC)))
    await bump(transaction, "tenants")


async def update_key(transaction: Transaction, key: Key) -> None:
    """Writes every field of the key with this id. Raises DuplicateRow."""
    await transaction.execute(update(keys).where(keys.c.id == key.id).values(_values(key)))
    await bump(transaction, "tenants")


async def replace_hash(transaction: Transaction, key: Key, key_hash: str, previous_until: datetime) -> None:
    """The key gets a new secret; the one it had works on until that time, one before that no more."""
    values = {**_values(key), "hash": key_hash, "previous_hash": keys.c.hash, "previous_until": previous_until}
    await transaction.execute(update(keys).where(keys.c.id == key.id).values(values))
    await bump(transaction, "tenants")


async def select_keys(database: Database, tenant_id: str | None = None) -> list[KeyRow]:
    """Sorted by tenant and age."""
    query = _with_names()
    if tenant_id is not None:
        query = query.where(keys.c.tenant_id == tenant_id)
    async with database.read() as connection:
        rows = await connection.execute(query.order_by(tenants.c.name, keys.c.created_at, keys.c.id))
        return [_row(row) for row in rows]


async def find_keys(transaction: Transaction, reference: str, tenant_id: str | None = None) -> list[KeyRow]:
    """Those whose id, prefix or name this is. Locks none: their tenant is what is kept from others."""
    answers = (keys.c.id == reference) | (keys.c.prefix == reference) | (keys.c.name == reference)
    query = _with_names().where(answers)
    if tenant_id is not None:
        query = query.where(keys.c.tenant_id == tenant_id)
    return [_row(row) for row in await transaction.execute(query)]


async def select_secrets(database: Database) -> list[SecretRow]:
    """Every secret there is, of disabled keys and tenants too."""
    async with database.read() as connection:
        own = {row.id: tenant_of(row) for row in await connection.execute(select(tenants))}
        groups = {row.id: team_of(row) for row in await connection.execute(select(teams))}
        rows = (await connection.execute(select(keys))).all()
    found: list[SecretRow] = []
    for row in rows:
        principal = _principal(row, own, groups)
        found.append(SecretRow(row.hash, principal))
        if row.previous_hash is not None:
            found.append(SecretRow(row.previous_hash, principal, row.previous_until))
    return found


def _principal(row: Row[Any], own: dict[str, Tenant], groups: dict[str, Team]) -> Principal:
    team = groups[row.team_id] if row.team_id is not None else None
    return Principal(tenant=own[row.tenant_id], key=_key(row), team=team)


def _with_names() -> Select[Any]:
    names = tenants.c.name.label("tenant_name"), teams.c.name.label("team_name")
    joined = keys.join(tenants, keys.c.tenant_id == tenants.c.id).outerjoin(teams, keys.c.team_id == teams.c.id)
    return select(keys, *names).select_from(joined)


def _row(row: Row[Any]) -> KeyRow:
    return KeyRow(_key(row), row.tenant_name, row.created_at, row.team_name, row.previous_until)


def _key(row: Row[Any]) -> Key:
    return Key(limits=limits_of(row), scope=_scope(row), **{name: getattr(row, name) for name in _KEY})


def _scope(row: Row[Any]) -> Scope | None:
    lists = {name: getattr(row, name) for name in Scope.__struct_fields__}
    if not any(lists.values()):
        return None
    read = msgspec.json.Decoder(tuple[str, ...]).decode
    return Scope(**{name: read(text) if text is not None else None for name, text in lists.items()})


def _values(key: Key) -> dict[str, Any]:
    scope = msgspec.structs.asdict(key.scope or Scope())
    lists = {name: msgspec.json.encode(value).decode() if value else None for name, value in scope.items()}
    limits = {name: getattr(key.limits, name) for name in LIMITS}
    return {name: getattr(key, name) for name in _KEY} | limits | lists
