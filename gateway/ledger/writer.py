"""Drains settled records into SQL in the background: batches, idempotent, patient when the database is away.

The queue in memory is bounded. What does not fit is dropped from memory, never from the journal, and read again once
there is room; no request ever waits for the database.
"""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from gateway.ledger.journal import Hold, Journal
from gateway.ledger.records import RequestRecord
from gateway.ledger.recovery import Pricing, find_orphans, read_settled
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.store.errors import RowRefused, StoreError

log = logging.getLogger("tollhouse.ledger")
BATCH = 200  # rows are prepared on the event loop: more at once would hold up streams for milliseconds
_LINGER_S = 0.1
_BACKOFF_S = (0.1, 5.0)


class Writer:
    def __init__(self, database: Database, folder: Path, journal: Journal, price: Pricing, max_queue: int) -> None:
        self._database = database
        self._folder = folder
        self._journal = journal
        self._price = price
        self._max_queue = max_queue
        self._queue: deque[tuple[RequestRecord, Hold]] = deque()
        self._overflowed = False
        self._hurry = asyncio.Event()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.error: str | None = None  # why nothing is written to the database at the moment
        self.num_written = 0
        self.num_refused = 0

    @property
    def num_queued(self) -> int:
        return len(self._queue)

    @property
    def overflowed(self) -> bool:
        """Whether records wait in the journal alone."""
        return self._overflowed

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="ledger writer")

    def put(self, record: RequestRecord, hold: Hold) -> None:
        if (self._overflowed or len(self._queue) >= self._max_queue) and self._journal.forget(hold):
            self._overflowed = True
        else:
            self._queue.append((record, hold))
        self._idle.clear()
        if not self._wake.is_set():
            self._wake.set()

    async def drain(self) -> None:
        """Returns once all that was put, and all that dead gateways left, is in SQL."""
        self._hurry.set()
        self._wake.set()
        try:
            await self._idle.wait()
        finally:
            self._hurry.clear()

    async def aclose(self, timeout_s: float) -> None:
        """What is not in SQL by then stays in the journal for the next start."""
        task, self._task = self._task, None
        if task is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self.drain()
        except TimeoutError:
            log.warning("the database is away (%s): records stay in the journal for the next start", self.error)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._recover()
        except OSError as error:  # what can't be read now is tried again at the next start
            log.error("a dead gateway's journal can't be read: %s", error)
        while True:
            try:
                await self._write_all()
            except OSError as error:  # of the journal: the database's own are handled where they happen
                log.error("the journal can't be read: %s", error)
                await asyncio.sleep(_BACKOFF_S[1])
                continue
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()
            await self._linger()

    async def _linger(self) -> None:
        """Company makes a transaction cheaper; who drains wants none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await self._hurry.wait()

    async def _write_all(self) -> None:
        while self._queue or self._overflowed:
            await self._write_queue()
            await self._write_unread()
            self._journal.retry()

    async def _write_queue(self) -> None:
        while self._queue:
            batch = [*islice(self._queue, BATCH)]
            await self._insert([record for record, _ in batch])
            for _, hold in batch:  # leaves the queue only now: a cancelled drain loses nothing
                self._queue.popleft()
                self._journal.release(hold)
            if 0 < len(self._queue) < BATCH:
                await self._linger()

    async def _write_unread(self) -> None:
        while (segment := self._journal.next_unread()) is not None:
            assert segment.unread_from is not None
            records, read_to = await asyncio.to_thread(read_settled, segment.path, segment.unread_from, segment.size)
            for start in range(0, len(records), BATCH):
                await self._insert(records[start : start + BATCH])
            self._journal.was_read(segment, read_to)
        self._overflowed = False

    async def _recover(self) -> None:
        for orphan in await asyncio.to_thread(find_orphans, self._folder):
            done = False
            try:
                batches = orphan.batches(self._price)
                while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                    for start in range(0, len(batch), BATCH):
                        await self._insert(batch[start : start + BATCH])
                done = True
            finally:
                orphan.close(delete=done)

    async def _insert(self, records: list[RequestRecord]) -> None:
        """Returns when every record is in SQL, or refused by it and put aside."""
        pause_s = _BACKOFF_S[0]
        while True:
            try:
                await insert_entries(self._database, records)
            except RowRefused as error:
                await self._insert_halves(records, str(error))
            except StoreError as error:
                if self.error is None:
                    log.warning("the database is away, records wait in the journal: %s", error)
                self.error = str(error)
                self._journal.retry()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _BACKOFF_S[1])
                continue
            except Exception as error:  # a bug of ours in one record must not end the bookkeeping of all others
                log.exception("a record can't be booked")
                await self._insert_halves(records, repr(error))
            else:
                self.num_written += len(records)
            if self.error is not None:
                log.info("the database takes records again")
                self.error = None
            return

    async def _insert_halves(self, records: list[RequestRecord], reason: str) -> None:
        """One record that the database can't take must not hold up the others."""
        if len(records) > 1:
            middle = len(records) // 2
            await self._insert(records[:middle])
            await self._insert(records[middle:])
            return
        self.num_refused += 1
        log.error("the database refuses the record of request %s: %s", records[0].id, reason)
        with (self._folder / "refused.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(records[0]) + b"\n")
