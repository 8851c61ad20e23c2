"""Databases by URL: clear words for useless ones, and the settings that SQLite needs."""

import asyncio
import importlib.util
from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.store.database import Database
from gateway.store.errors import RowRefused, StoreConfigError, StoreUnavailable
from gateway.store.url import parse_url, sqlite_url
from gateway.store.versions import VersionWatch, bump, current
from gateway.tenants import registry
from gateway.tenants.audit import Target, acting
from gateway.tenants.registry.find import find_tenant


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "not a database URL"),
        ("nonsense", "not a database URL"),
        ("postgresql://host:port/db", "not a database URL"),
        ("mysql://host/db", "'mysql' is not supported"),
        ("postgresql+psycopg2://host/db", r"use postgresql\+asyncpg"),
        ("sqlite+pysqlite:///x", r"use sqlite\+aiosqlite"),
    ],
)
def test_a_useless_url_is_refused_at_once(url: str, complaint: str) -> None:
    with pytest.raises(StoreConfigError, match=complaint):
        Database(url)


@pytest.mark.parametrize("url", ["postgresql://u:hunter2@h/d", "postgres://u:hunter2@h/d"])
def test_shorthand_gets_its_driver_and_no_repr_shows_the_password(url: str) -> None:
    assert parse_url(url).drivername == "postgresql+asyncpg"
    assert "hunter2" not in repr(Database(url))


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    without = lambda name, *rest: None if name == "asyncpg" else found(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(StoreConfigError, match=r"pip install 'tollhouse\[postgres\]'"):
        Database("postgresql://h/d")


@pytest.mark.anyio
async def test_the_default_lies_in_the_home_folder_which_is_made(tmp_path: Path) -> None:
    database = Database(sqlite_url(tmp_path / "new" / "home"))
    await database.open()
    async with database.read() as connection:
        assert await connection.scalar(text("PRAGMA journal_mode")) == "wal"
        assert await connection.scalar(text("PRAGMA foreign_keys")) == 1
        assert await connection.scalar(text("PRAGMA busy_timeout")) == 10_000
    await database.aclose()
    assert (tmp_path / "new" / "home" / "tollhouse.db").exists()


@pytest.mark.anyio
async def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreConfigError, match="no place for the database"):
        await Database(sqlite_url(tmp_path / "file" / "home")).open()


@pytest.mark.anyio
async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "tollhouse.db").write_text("not a database, but long enough to be looked at" * 50)
    database = Database(sqlite_url(tmp_path))
    with pytest.raises((StoreConfigError, StoreUnavailable), match="not a database"):
        await database.open()
    await database.aclose()


@pytest.mark.anyio
async def test_a_failed_transaction_changes_nothing(database_url: str) -> None:
    database = Database(database_url)
    await database.open()
    row = text("INSERT INTO versions (topic, version) VALUES (:topic, 1)")

    async def insert_two() -> None:
        async with database.write() as connection:
            await connection.execute(row, {"topic": "new"})
            await connection.execute(row, {"topic": "tenants"})

    with pytest.raises(RowRefused):
        await insert_two()
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT COUNT(*) FROM versions WHERE topic = 'new'")) == 0
    await database.aclose()


@pytest.mark.anyio
async def test_a_database_that_does_not_exist_is_named(postgres_url: str) -> None:
    database = Database(postgres_url + "_missing")
    with pytest.raises(StoreConfigError, match="does not exist"):
        await database.open()
    await database.aclose()


@pytest.mark.anyio
async def test_a_read_sees_one_state_throughout(database_url: str) -> None:
    """Keys are read after their tenants: a key of a tenant that came in between would stand alone."""
    database = Database(database_url)
    await database.open()
    count = text("SELECT COUNT(*) FROM versions")
    async with database.read() as reading:
        before = await reading.scalar(count)
        async with database.write() as writing:
            await writing.execute(text("INSERT INTO versions (topic, version) VALUES ('new', 1)"))
        assert await reading.scalar(count) == before
    async with database.read() as reading:
        assert await reading.scalar(count) == before + 1
    await database.aclose()


@pytest.mark.anyio
async def test_a_read_does_not_wait_for_a_write(database_url: str) -> None:
    database = Database(database_url)
    await database.open()
    await registry.create_tenant(database, "acme")
    async with acting(database) as act:
        await find_tenant(act.transaction, "acme")
        async with asyncio.timeout(5):
            assert (await registry.get_tenant(database, "acme")).name == "acme"
        act.note("nothing.done", target=Target("", ""))
    await database.aclose()


@pytest.mark.anyio
async def test_a_topic_that_is_new_to_two_at_once_grows_twice(database_url: str) -> None:
    database = Database(database_url)
    await database.open()
    async with database.write() as connection:
        await connection.execute(text("DELETE FROM versions WHERE topic = 'budgets'"))

    async def change() -> None:
        async with database.write() as connection:
            await bump(connection, "budgets")
            await asyncio.sleep(0.05)  # meanwhile the other one arrives

    await asyncio.gather(change(), change())
    assert await current(database, "budgets") == 2
    await database.aclose()


@pytest.mark.anyio
async def test_a_watch_outlives_whatever_its_reading_raises(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    await database.open()
    outcomes: list[Exception | None] = [None, KeyError("a row that makes no sense"), None]
    has_read = asyncio.Event()

    async def reload() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        has_read.set()

    watch = VersionWatch(database, "tenants", reload, 0.01)
    await watch.start()
    has_read.clear()
    await registry.create_tenant(database, "acme")
    async with asyncio.timeout(5):
        await has_read.wait()
    assert watch.error is None
    await watch.aclose()
    await database.aclose()
