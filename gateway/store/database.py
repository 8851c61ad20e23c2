"""One database behind one object: SQLite by default, PostgreSQL by URL. Knows nothing of what is stored in it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Dialect, Select, Table, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from gateway.store.errors import StoreConfigError, StoreUnavailable
from gateway.store.migrate import upgrade_to_head
from gateway.store.sqlite import WRITES, SqliteThread, Statement, prepare
from gateway.store.translate import translated
from gateway.store.url import parse_url

Transaction = AsyncConnection  # what `Database.write` hands out: all that is done in it happens, or nothing

_CONNECT_TIMEOUT_S = 5.0
_COMMAND_TIMEOUT_S = 60.0
_MIGRATION_LOCK = 0x746F6C6C686F7573  # "tollhous", as an advisory lock of PostgreSQL


class Database:
    """`open` before use, `aclose` after. Raises StoreConfigError at once for a URL that can't be used."""

    def __init__(self, url: str) -> None:
        self._url = parse_url(url)
        self.dialect = self._url.get_backend_name()
        self._in_memory = self._url.database in (None, "", ":memory:")
        self._engine = self._create_engine()
        self._reader = self._engine
        in_file = self.dialect == "sqlite" and not self._in_memory
        self._in_thread = SqliteThread(self._url) if in_file else None
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
        if self._in_thread is not None:
            await self._in_thread.aclose()
        await self._engine.dispose()

    @property
    def sql(self) -> Dialect:
        """What statements are compiled for."""
        return self._engine.dialect

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
                connection = await plain.execution_options(**{WRITES: True})
                async with connection.begin():
                    yield connection

    async def execute(self, statements: Sequence[Statement]) -> None:
        """All of them in one transaction, each for all its rows. Raises as `write` does, and nothing is changed then.

        Into a file of SQLite in one visit to one thread: the event loop's part would cost more than all of the rows.
        """
        if self._in_thread is not None:
            with translated():
                await self._in_thread.execute(statements)
            return
        async with self.write() as connection:
            for sql, rows in statements:
                await connection.exec_driver_sql(sql, list(rows))

    def __repr__(self) -> str:
        return f"Database({self._url.render_as_string(hide_password=True)!r})"

    def _create_engine(self) -> AsyncEngine:
        if self.dialect == "postgresql":
            connect_args = {"timeout": _CONNECT_TIMEOUT_S, "command_timeout": _COMMAND_TIMEOUT_S}
            return create_async_engine(self._url, pool_pre_ping=True, pool_size=5, connect_args=connect_args)
        options: dict[str, Any] = {"poolclass": StaticPool} if self._in_memory else {"pool_size": 5}
        engine = create_async_engine(self._url, **options)
        prepare(engine.sync_engine)
        return engine

    def _make_folder(self) -> None:
        if self._in_memory:
            return
        try:
            Path(str(self._url.database)).parent.mkdir(parents=True, exist_ok=True)
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
    writes = connection.sync_connection.get_execution_options().get(WRITES, False)
    return query.with_for_update(of=of) if writes else query
