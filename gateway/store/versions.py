"""Topic numbers that grow with every change, and a watch that notices: how the CLI's edits reach running gateways."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.insert import insert_into
from gateway.store.tables import versions

Topic = Literal["tenants", "prices", "erasures", "budgets"]
log = logging.getLogger("tollhouse.store")


async def bump(connection: AsyncConnection, topic: Topic) -> None:
    """In the transaction of the change itself, so that nobody sees the number before the change."""
    await connection.execute(
        insert_into(versions, connection.dialect)
        .values(topic=topic, version=1)
        .on_conflict_do_update(index_elements=[versions.c.topic], set_={"version": versions.c.version + 1})
    )


async def current(database: Database, topic: Topic) -> int:
    async with database.read() as connection:
        found = await connection.scalar(select(versions.c.version).where(versions.c.topic == topic))
        return int(found or 0)


class VersionWatch:
    """Polls one topic and awaits `reload` after each change. A database that is away leaves things as they are."""

    def __init__(
        self, database: Database, topic: Topic, reload: Callable[[], Awaitable[None]], interval_s: float = 0.5
    ) -> None:
        self._database = database
        self._topic: Topic = topic
        self._reload = reload
        self._interval_s = interval_s
        self._seen = -1
        self._task: asyncio.Task[None] | None = None
        self.error: str | None = None  # why the last poll failed

    async def start(self) -> None:
        """Loads once, then watches. Raises StoreError if the first load fails."""
        await self._poll()
        self._task = asyncio.create_task(self._run(), name=f"watch {self._topic}")

    async def aclose(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _poll(self) -> None:
        version = await current(self._database, self._topic)  # before the load: a change in between loads again
        if version != self._seen:
            await self._reload()
            self._seen = version

    async def poll(self) -> None:
        """Looks now, whatever the interval. A database that is away is noted, not raised, and so is a fault of ours.

        A watch that had ended would let in for ever whom an administrator has locked out.
        """
        try:
            await self._poll()
        except Exception as error:
            if self.error is None:
                fault = None if isinstance(error, StoreError) else error
                log.warning("%s stay as they were last read: %s", self._topic, error, exc_info=fault)
            self.error = str(error)
            return
        if self.error is not None:
            log.info("%s are read from the database again", self._topic)
            self.error = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.poll()
