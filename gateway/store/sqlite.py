"""What SQLite needs from whoever connects to it, and a thread of its own for transactions of plain statements."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

WRITES = "tollhouse_write"  # the execution option of a connection that changes something
_BUSY_TIMEOUT_MS = 10_000

Statement = tuple[str, Sequence[tuple[Any, ...]]]  # in the driver's own words, and the rows that it is run for


def prepare(engine: Engine) -> None:
    """From now on its connections are set up, and begin their transactions, as we want it."""
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)


class SqliteThread:
    """A connection that one thread uses, so that a whole transaction costs the event loop a single visit there."""

    def __init__(self, url: URL) -> None:
        engine = create_engine(url.set(drivername="sqlite"), pool_size=1)
        prepare(engine)
        self._engine = engine.execution_options(**{WRITES: True})
        self._thread = ThreadPoolExecutor(1, "sqlite rows")

    async def execute(self, statements: Sequence[Statement]) -> None:
        """All in one transaction. It is done, or left, to its end even if who waits for it is cancelled."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._execute, statements)

    async def aclose(self) -> None:
        """Once it is done with what it has begun."""
        await asyncio.to_thread(self._thread.shutdown)
        self._engine.dispose()

    def _execute(self, statements: Sequence[Statement]) -> None:
        with self._engine.begin() as connection:
            for sql, rows in statements:
                connection.exec_driver_sql(sql, list(rows))


def _set_up(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves: the driver would leave DDL outside the transaction
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA synchronous=NORMAL")  # safe under WAL; the journal covers what a power cut may take
    cursor.close()


def _begin(connection: Connection) -> None:
    # A writer takes the lock at once: upgrading a read transaction later fails instead of waiting.
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
