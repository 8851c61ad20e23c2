"""One database behind one object: SQLite by default, PostgreSQL by URL. Knows nothing of what is stored in it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, Table, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from gateway.store.errors import StoreConfigError, StoreUnavailable
from gateway.store.migrate import upgrade_to_head
from gateway.store.translate import translated
from gateway.store.url import parse_url

Transaction = AsyncConnection  # what `Database.write` hands out: all that is done in it happens, or nothing

_WRITES = "tollhouse_write"  # the execution option of a connection that `write` hands out
_BUSY_TIMEOUT_MS = 10_000
_CONNECT_TIMEOUT_S = 5.0
_COMMAND_TIMEOUT_S = 60.0
_MIGRATION_LOCK = 0x746F6C6C686F7573  # "tollhous", as an advisory lock of PostgreSQL


class Database:
    """`open` before use, `aclose` after. Raises StoreConfigError at once for a URL that can't be used."""

    def __init__(self, url: str) -> None:
        self._url = parse_url(url)
        self.dialect = self._url.get_backend_name()
        self._engine = self._create_engine()
        self._reader = self._engine
        if self.dialect == "postgresql":  # where each statement would see a state of its own
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")

    async def open(self) -> None:
        """Connects and brings the schema to its head; safe when several gateways do so at once."""
        if self.dialect == "sqlite":
            self._make_folder()
        with translated():
            if self.dialect == "sqlite":
                await self._switch_to_wal()
            async with self.write() as connection:
                if self.dialect == "postgresql":
                    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
                await connection.run_sync(upgrade_to_head)

    async def aclose(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A connection in one consistent read: all of it sees what its first statement saw. Raises StoreUnavailable."""
        with translated():
            async with self._reader.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """One transaction, committed at the end. Raises StoreUnavailable or RowRefused: nothing is changed then."""
        with translated():
            async with self._engine.connect() as plain:
                connection = await plain.execution_options(**{_WRITES: True})
                async with connection.begin():
                    yield connection

    def __repr__(self) -> str:
        return f"Database({self._url.render_as_string(hide_password=True)!r})"

    def _create_engine(self) -> AsyncEngine:
        if self.dialect == "postgresql":
            connect_args = {"timeout": _CONNECT_TIMEOUT_S, "command_timeout": _COMMAND_TIMEOUT_S}
            return create_async_engine(self._url, pool_pre_ping=True, pool_size=5, connect_args=connect_args)
        in_memory = self._url.database in (None, "", ":memory:")
        options: dict[str, Any] = {"poolclass": StaticPool} if in_memory else {"pool_size": 5}
        engine = create_async_engine(self._url, **options)
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        event.listen(engine.sync_engine, "begin", _begin_sqlite)
        return engine

    def _make_folder(self) -> None:
        if self._url.database and self._url.database != ":memory:":
            try:
                Path(self._url.database).parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreConfigError(f"no place for the database {self._url.database}: {error.strerror}") from error

    async def _switch_to_wal(self) -> None:
        """The switch needs the file for itself and, unlike all else, does not wait for it: so we do."""
        for _ in range(200):
            try:
                async with self._engine.connect() as connection:
                    raw = await connection.get_raw_connection()
                    cursor = await raw.driver_connection.execute("PRAGMA journal_mode=WAL")  # type: ignore[union-attr]
                    await cursor.close()
                    return
            except Exception as error:
                if "locked" not in str(error):
                    raise
                await asyncio.sleep(0.02)
        raise StoreUnavailable("the database file stays locked by another process")


def kept_from_others(query: Select[Any], connection: AsyncConnection, *, of: Table) -> Select[Any]:
    """Inside `Database.write`, nobody else changes the found rows of `of` before it ends; a read waits for nobody."""
    assert connection.sync_connection is not None
    writes = connection.sync_connection.get_execution_options().get(_WRITES, False)
    return query.with_for_update(of=of) if writes else query


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves: the driver would leave DDL outside the transaction
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA synchronous=NORMAL")  # safe under WAL; the journal covers what a power cut may take
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the lock at once: upgrading a read transaction later fails instead of waiting.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
