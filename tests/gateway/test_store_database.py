"""Databases by URL: clear words for useless ones, and the settings that SQLite needs."""

import importlib.util
from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.store.database import Database
from gateway.store.errors import RowRefused, StoreConfigError, StoreUnavailable
from gateway.store.url import parse_url, sqlite_url


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
