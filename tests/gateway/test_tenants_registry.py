"""Tenants and keys: made, listed, disabled; a key is nowhere but in the hands of who got it."""

import asyncio
from pathlib import Path

import pytest

from gateway.store.database import Database
from gateway.tenants import registry
from gateway.tenants.errors import DuplicateName, InvalidName, UnknownName
from gateway.tenants.keys import PREFIX, display_prefix, hash_key, make_key
from gateway.tenants.types import Limits


def test_keys_are_long_random_and_recognisable() -> None:
    keys = {make_key() for _ in range(1000)}
    assert len(keys) == 1000
    for key in keys:
        assert key.startswith(PREFIX)
        assert len(key) == len(PREFIX) + 43
        assert key.isascii()
        assert display_prefix(key) == key[:10]
    assert len(hash_key(keys.pop())) == len(hash_key("\ud800")) == 32  # whatever a caller sends can be looked up


@pytest.mark.anyio
async def test_tenants_come_back_as_they_were_made(database: Database) -> None:
    limits = Limits(requests_per_minute=10, concurrent_requests=0)
    made = await registry.create_tenant(
        database, "acme", limits=limits, baseline_model="gpt-4o", default_max_tokens=500, capture="text"
    )
    other = await registry.create_tenant(database, "Beta-2.x_y")
    assert await registry.list_tenants(database) == sorted([made, other], key=lambda tenant: tenant.name)
    assert await registry.get_tenant(database, "acme") == made
    changed = await registry.change_tenant(database, "acme", limits=Limits(tokens_per_minute=7), baseline_model=None)
    assert await registry.get_tenant(database, "acme") == changed
    assert changed.limits == Limits(tokens_per_minute=7)
    assert (await registry.disable_tenant(database, "acme")).disabled
    assert (await registry.get_tenant(database, "acme")).disabled
    assert not (await registry.enable_tenant(database, "acme")).disabled


@pytest.mark.anyio
async def test_names_are_checked(database: Database) -> None:
    for name in ("", " ", "a b", "-a", "a/b", "é", "a" * 65, "a\n", "a\0"):
        with pytest.raises(InvalidName, match="1 to 64 letters"):
            await registry.create_tenant(database, name)


@pytest.mark.anyio
async def test_numbers_and_words_are_checked(database: Database) -> None:
    with pytest.raises(ValueError, match="requests_per_minute can't be negative"):
        await registry.create_tenant(database, "a", limits=Limits(requests_per_minute=-1))
    with pytest.raises(ValueError, match="capture is one of off, signals, text"):
        await registry.create_tenant(database, "a", capture="all")  # type: ignore[arg-type]
    assert await registry.list_tenants(database) == []


@pytest.mark.anyio
async def test_duplicates_and_unknown_names_are_named(database: Database) -> None:
    await registry.create_tenant(database, "acme")
    with pytest.raises(DuplicateName, match="a tenant named 'acme' already"):
        await registry.create_tenant(database, "acme")
    with pytest.raises(UnknownName, match="no tenant named 'acne'; known: acme"):
        await registry.create_key(database, "acne")
    await registry.create_key(database, "acme", "ci")
    with pytest.raises(DuplicateName, match="a key named 'ci' already"):
        await registry.create_key(database, "acme", "ci")
    with pytest.raises(UnknownName, match="no such key"):
        await registry.disable_key(database, "nothing")


@pytest.mark.anyio
async def test_a_key_is_disabled_by_id_prefix_or_name(database: Database) -> None:
    for tenant in ("acme", "beta"):
        await registry.create_tenant(database, tenant)
        await registry.create_key(database, tenant, "ci")
    unnamed = await registry.create_key(database, "acme")
    assert unnamed.key.name == unnamed.key.prefix
    assert (await registry.disable_key(database, unnamed.key.prefix)).id == unnamed.key.id
    assert (await registry.enable_key(database, unnamed.key.id)).disabled is False
    with pytest.raises(UnknownName, match="2 keys answer"):
        await registry.disable_key(database, "ci")
    await registry.disable_key(database, "ci", "beta")
    rows = await registry.list_keys(database)
    assert [(row.tenant_name, row.key.disabled) for row in rows] == [("acme", False), ("acme", False), ("beta", True)]
    assert len(await registry.list_keys(database, "acme")) == 2


@pytest.mark.anyio
async def test_the_first_start_makes_one_demo_tenant(database: Database, database_url: str) -> None:
    other = Database(database_url)
    made = await asyncio.gather(
        registry.create_first_tenant(database), registry.create_first_tenant(other), return_exceptions=True
    )
    assert sum(each is not None for each in made) == 1, made
    assert await registry.create_first_tenant(database) is None
    assert [tenant.name for tenant in await registry.list_tenants(database)] == ["demo"]
    assert len(await registry.list_keys(database, "demo")) == 1
    await other.aclose()


@pytest.mark.anyio
async def test_the_secret_is_neither_stored_nor_printed(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'books.db'}")
    await database.open()
    await registry.create_tenant(database, "acme")
    made = await registry.create_key(database, "acme")
    await database.aclose()
    assert made.secret not in repr(made)
    assert made.secret not in repr(made.key)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert made.secret.encode() not in stored
    assert made.secret[len(PREFIX) + 4 :].encode() not in stored
    assert hash_key(made.secret).hex().encode() in stored
