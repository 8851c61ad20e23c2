"""Where responses are kept: in SQL, and for as long as the database is away, in memory until it is back.

Takes out what has expired, in batches.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from gateway.responses.types import StoredResponse
from gateway.store.database import Database
from gateway.store.errors import DuplicateRow, StoreError, StoreUnavailable
from gateway.store.responses import delete_expired, delete_response, finish_response, insert_response, select_response

MAX_WAITING_BYTES = 64 * 2**20
SWEEP_INTERVAL_S = 300.0
RETRY_INTERVAL_S = 1.0
EXPIRED_AT_A_TIME = 500

log = logging.getLogger("tollhouse.responses")


class Shelf:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[str, tuple[StoredResponse, tuple[str, ...]]] = {}  # for the database
        self._num_waiting_bytes = 0
        self._writing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._sweep_forever(), name="responses-sweep"),
            asyncio.create_task(self._retry_forever(), name="responses-retry"),
        ]

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.write_waiting()
        if self._waiting:
            log.error("%d responses are lost: the database is away", len(self._waiting))

    async def keep(self, response: StoredResponse, conversation: Sequence[str] = ()) -> None:
        """Written when this returns, unless the database is away: then soon. `conversation`: the turns before."""
        try:
            await self._write(response, tuple(conversation))
        except StoreUnavailable as error:
            self._wait(response, tuple(conversation), error)
        except StoreError:
            log.exception("the response %s could not be stored", response.id)

    async def find(self, tenant_id: str, id: str) -> StoredResponse | None:
        """Raises StoreUnavailable."""
        waiting, _ = self._waiting.get(id, (None, ()))
        if waiting is not None:
            return waiting if waiting.tenant_id == tenant_id else None
        return await select_response(self._database, tenant_id, id, datetime.now(UTC))

    async def remove(self, tenant_id: str, id: str) -> bool:
        """False when there is no such response. Raises StoreUnavailable."""
        async with self._writing:
            waiting, _ = self._waiting.get(id, (None, ()))
            was_waiting = waiting is not None and waiting.tenant_id == tenant_id
            if was_waiting:
                self._forget(id)
            return await delete_response(self._database, tenant_id, id) or was_waiting

    async def sweep(self) -> int:
        """Takes out everything that has expired. Returns how many."""
        num_gone = 0
        while num := await delete_expired(self._database, datetime.now(UTC), EXPIRED_AT_A_TIME):
            num_gone += num
            await asyncio.sleep(0)
        return num_gone

    async def write_waiting(self) -> None:
        async with self._writing:
            for id, (response, conversation) in list(self._waiting.items()):
                try:
                    await self._write(response, conversation)
                except StoreUnavailable:
                    return
                except DuplicateRow:
                    pass  # it had got there, and only the database's word for it was lost
                except StoreError:
                    log.exception("the response %s could not be stored", id)
                self._forget(id)

    async def _write(self, response: StoredResponse, conversation: tuple[str, ...]) -> None:
        """A background response has its row already."""
        if response.background:
            await finish_response(self._database, response)
        else:
            await insert_response(self._database, response, conversation)

    def _wait(self, response: StoredResponse, conversation: tuple[str, ...], error: StoreError) -> None:
        if self._num_waiting_bytes + response.num_bytes > MAX_WAITING_BYTES:
            log.error("the response %s is lost: too many wait for the database", response.id)
            return
        log.warning("the response %s waits in memory: %s", response.id, error)
        self._waiting[response.id] = response, conversation
        self._num_waiting_bytes += response.num_bytes

    def _forget(self, id: str) -> None:
        if found := self._waiting.pop(id, None):
            self._num_waiting_bytes -= found[0].num_bytes

    async def _sweep_forever(self) -> None:
        while True:
            try:
                if num_gone := await self.sweep():
                    log.info("%d stored responses have expired and are gone", num_gone)
            except StoreError as error:
                log.warning("stored responses can't expire for now: %s", error)
            await asyncio.sleep(SWEEP_INTERVAL_S)

    async def _retry_forever(self) -> None:
        while True:
            await asyncio.sleep(RETRY_INTERVAL_S)
            await self.write_waiting()
