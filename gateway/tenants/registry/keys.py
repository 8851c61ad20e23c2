"""Keys: made, narrowed, given a new secret, refused. A secret is in what these functions return, and nowhere else."""

from datetime import UTC, datetime, timedelta

import msgspec

from gateway.ids import new_id
from gateway.store import keys as store
from gateway.store.database import Database, Transaction
from gateway.store.errors import DuplicateRow
from gateway.store.keys import KeyRow
from gateway.tenants.audit import PROGRAM, Act, Actor, acting
from gateway.tenants.errors import DuplicateName, InvalidValue
from gateway.tenants.keys import display_prefix, hash_key, make_key
from gateway.tenants.registry.changes import changed
from gateway.tenants.registry.checks import check_limits, check_name
from gateway.tenants.registry.find import find_key, find_team, find_tenant
from gateway.tenants.scopes import checked
from gateway.tenants.types import Key, Limits, Scope, Tenant

MAX_OVERLAP_S = 30 * 86_400


class NewKey(msgspec.Struct, frozen=True):
    """`secret` is the key itself: it exists nowhere else and is to be shown once."""

    key: Key
    secret: str

    def __repr__(self) -> str:  # so that no traceback or log ever holds the secret
        return f"NewKey({self.key!r})"


async def create_key(
    database: Database,
    tenant_name: str,
    name: str = "",
    *,
    team: str | None = None,
    scope: Scope | None = None,
    limits: Limits | None = None,
    expires_at: datetime | None = None,
    by: Actor = PROGRAM,
) -> NewKey:
    """A key without a name is called after its prefix. Raises UnknownName, InvalidName, DuplicateName, InvalidValue."""
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise InvalidValue(f"expires_at: {expires_at.isoformat()} is past already")
    try:
        async with acting(database, by) as act:
            tenant = await find_tenant(act.transaction, tenant_name)
            made = new_key(tenant.id, name)
            key = msgspec.structs.replace(
                made.key,
                team_id=await _team_id(act.transaction, tenant, team),
                scope=scope,
                limits=limits or Limits(),
                expires_at=expires_at,
            )
            made = NewKey(_checked(key), made.secret)
            await add_key(act, made)
    except DuplicateRow as error:
        raise _taken(tenant_name, made.key.name) from error
    return made


async def list_keys(database: Database, tenant_name: str | None = None) -> list[KeyRow]:
    """Sorted by tenant and age, disabled ones too. Raises UnknownName."""
    tenant_id = None
    if tenant_name is not None:
        async with database.read() as connection:
            tenant_id = (await find_tenant(connection, tenant_name)).id
    return await store.select_keys(database, tenant_id)


async def get_key(database: Database, reference: str, tenant_name: str | None = None) -> KeyRow:
    """`reference` is a key's id, prefix or name, as far as that points at one key. Raises UnknownName."""
    async with database.read() as connection:
        return await find_key(connection, reference, tenant_name)


async def change_key(
    database: Database,
    reference: str,
    tenant_name: str | None = None,
    /,
    *,
    by: Actor = PROGRAM,
    action: str = "key.change",
    **changes: object,
) -> Key:
    """Sets the given fields of a Key, or of its Scope or Limits; `team` is a team's name, or None for no team.

    Raises UnknownName, InvalidName, DuplicateName, InvalidValue.
    """
    try:
        async with acting(database, by) as act:
            row = await find_key(act.transaction, reference, tenant_name)
            if "team" in changes:
                tenant = await find_tenant(act.transaction, row.tenant_name)
                changes["team_id"] = await _team_id(act.transaction, tenant, changes.pop("team"))
            after = _checked(changed(row.key, changes))
            await store.update_key(act.transaction, after)
            act.note(action, target=after, before=row.key, after=after)
    except DuplicateRow as error:
        raise _taken(row.tenant_name, after.name) from error
    return after


async def rotate_key(
    database: Database,
    reference: str,
    tenant_name: str | None = None,
    *,
    overlap_s: float = 0.0,
    by: Actor = PROGRAM,
) -> NewKey:
    """A new secret for the same key; the one before works for `overlap_s` more, one from before that no more.

    Raises UnknownName, and InvalidValue for a key that is revoked.
    """
    if not 0 <= overlap_s <= MAX_OVERLAP_S:
        raise InvalidValue(f"overlap_s is from 0 to {MAX_OVERLAP_S} seconds")
    async with acting(database, by) as act:
        row = await find_key(act.transaction, reference, tenant_name)
        if row.key.disabled:
            raise InvalidValue(f"the key {row.key.name!r} is revoked; make a new one")
        secret = make_key()
        prefix = display_prefix(secret)
        unnamed = row.key.name == row.key.prefix
        key = msgspec.structs.replace(row.key, prefix=prefix, name=prefix if unnamed else row.key.name)
        until = datetime.now(UTC) + timedelta(seconds=overlap_s)
        await store.replace_hash(act.transaction, key, hash_key(secret).hex(), until)
        act.note("key.rotate", target=key, before=row.key, after=key)
    return NewKey(key, secret)


async def disable_key(
    database: Database, reference: str, tenant_name: str | None = None, *, by: Actor = PROGRAM
) -> Key:
    """It is refused from now on, as is a secret that it had before. Raises UnknownName."""
    return await change_key(database, reference, tenant_name, by=by, action="key.revoke", disabled=True)


async def enable_key(database: Database, reference: str, tenant_name: str | None = None, *, by: Actor = PROGRAM) -> Key:
    return await change_key(database, reference, tenant_name, by=by, action="key.restore", disabled=False)


def new_key(tenant_id: str, name: str) -> NewKey:
    """Not stored yet. Raises InvalidName."""
    secret = make_key()
    key = Key(id=new_id(), tenant_id=tenant_id, name=name or display_prefix(secret), prefix=display_prefix(secret))
    return NewKey(_checked(key), secret)


async def add_key(act: Act, made: NewKey) -> None:
    """Raises DuplicateRow when the tenant has a key of this name."""
    await store.insert_key(act.transaction, made.key, hash_key(made.secret).hex())
    act.note("key.create", target=made.key, after=made.key)


async def _team_id(transaction: Transaction, tenant: Tenant, team: object) -> str | None:
    return None if team is None else (await find_team(transaction, tenant, str(team))).id


def _checked(key: Key) -> Key:
    check_name("key", key.name)
    check_limits(key.limits)
    if key.expires_at is not None and key.expires_at.tzinfo is None:
        raise InvalidValue("expires_at needs a time zone")
    return key if key.scope is None else msgspec.structs.replace(key, scope=checked(key.scope))


def _taken(tenant_name: str, name: str) -> DuplicateName:
    return DuplicateName(f"the tenant {tenant_name!r} has a key named {name!r} already")
