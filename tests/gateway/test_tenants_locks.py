"""Administrators at the same time on PostgreSQL: who changes something of a tenant waits for who deletes the tenant."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from sqlalchemy import text

from gateway.store import tenants as store
from gateway.store.budgets import delete_budgets
from gateway.store.database import Database
from gateway.tenants import registry
from gateway.tenants.budgets import set_budget
from gateway.tenants.errors import UnknownName
from gateway.tenants.registry.find import find_key

pytestmark = pytest.mark.anyio

WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
ACTS: dict[str, Callable[[Database, str], Awaitable[object]]] = {
    "change": lambda database, key: registry.change_key(database, key, team="crew"),
    "rename": lambda database, key: registry.change_key(database, key, name="other"),
    "rotate": lambda database, key: registry.rotate_key(database, key),
    "make": lambda database, _: registry.create_key(database, "acme", team="crew"),
    "team": lambda database, _: registry.change_team(database, "acme", "crew", disabled=True),
    "budget": lambda database, key: set_budget(database, "acme", key=key, period="day", amount_nanousd=1),
}


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    database = Database(postgres_url)
    await database.open()
    yield database
    await database.aclose()


async def until_one_waits(database: Database) -> None:
    async with asyncio.timeout(20):
        while True:
            async with database.read() as connection:
                if await connection.scalar(WAITING):
                    return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("act", ACTS)
async def test_none_waits_in_a_circle_with_who_deletes_the_tenant(database: Database, act: str) -> None:
    await registry.create_tenant(database, "acme")
    await registry.create_team(database, "acme", "crew")
    key = (await registry.create_key(database, "acme", "ci")).key
    await set_budget(database, "acme", key=key.id, period="month", amount_nanousd=1)
    async with database.write() as deleting:
        tenant = await store.select_tenant(deleting, "acme")
        assert tenant is not None
        acting = asyncio.ensure_future(ACTS[act](database, key.id))
        await until_one_waits(database)
        await delete_budgets(deleting, tenant.id)
        await store.delete_tenant(deleting, tenant.id)
    with pytest.raises(UnknownName):
        await acting
    assert await registry.list_tenants(database) == []


async def test_who_deletes_the_tenant_waits_for_who_changes_a_key(database: Database) -> None:
    await registry.create_tenant(database, "acme")
    await registry.disable_tenant(database, "acme")
    made = await registry.create_key(database, "acme", "ci")
    async with database.write() as changing:
        row = await find_key(changing, made.key.id, None)
        deleting = asyncio.ensure_future(registry.delete_tenant(database, "acme"))
        await until_one_waits(database)
        assert row.key == made.key
    assert (await deleting).name == "acme"
