"""Entries on their way into the file: a bounded table of what is to be written, drained in batches by one thread.

No request waits for the disk. What there is no room for is left out of the file; that an entry is to be forgotten is
never left out: with too many of those on the way, the whole file goes.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

from semcache.errors import StoreError
from semcache.store.cache_file import CacheFile
from semcache.store.record import Record, encode_record
from semcache.types import Question, StoredAnswer

if TYPE_CHECKING:
    from semcache.vector import Vector

log = logging.getLogger(__name__)
Result = TypeVar("Result")

MAX_WAITING = 20_000  # entries; more are not written
MAX_FORGOTTEN = 250_000  # more, and the file is begun anew
BATCH = 1000
LINGER_S = 0.2  # company makes a transaction cheaper
PAUSE_S = 5.0  # after a failure
CLOSE_S = 10.0

Waiting = tuple[Question, StoredAnswer, "Vector | None", str]
Cleaning = Literal["", "scrub", "compact"]


class WriteBehind:
    """`start` and `load` before use, `aclose` after. Lives on one event loop."""

    def __init__(self, file: CacheFile) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, "cache file")
        self._waiting: dict[int, Waiting | None] = {}  # by the entry's number; None: forget it
        self._wipe = False
        self._cleaning: Cleaning = ""
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._away = False
        self.num_dropped = 0  # entries that were not written for want of room

    async def start(self) -> None:
        """Raises StoreError when the file can't be opened."""
        await self._in_thread(self._file.open)
        self._task = asyncio.create_task(self._run(), name="cache file")

    async def load(self) -> AsyncIterator[list[tuple[int, Record]]]:
        """What the file holds, with the entries' numbers. Raises StoreError."""
        read = partial(next, self._file.read(), None)
        reading = self._in_thread(read)
        while (chunk := await reading) is not None:
            reading = self._in_thread(read)  # the next one, while this one is put to use
            yield chunk

    def put(
        self, number: int, question: Question, answer: StoredAnswer, vector: "Vector | None", embedder_id: str
    ) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.num_dropped += 1
            return
        self._waiting[number] = (question, answer, vector, embedder_id)
        self._rouse()

    def forget(self, number: int) -> None:
        if len(self._waiting) >= MAX_FORGOTTEN:
            self.wipe()
        self._waiting[number] = None
        self._rouse()

    def wipe(self) -> None:
        """Forgets all that was put by now."""
        self._waiting.clear()
        self._wipe = True
        self._rouse()

    def clean(self, *, thoroughly: bool) -> None:
        """What was forgotten is to leave no trace, and soon; `thoroughly`: in no half-used page, either."""
        self._cleaning = "compact" if thoroughly or self._cleaning == "compact" else "scrub"
        self._hurry.set()
        self._rouse()

    async def flush(self) -> None:
        """Returns once the file is up to date, or one more attempt has failed."""
        if self._waiting or self._wipe or self._cleaning:
            self._rouse()
        self._hurry.set()
        await self._idle.wait()

    async def aclose(self) -> None:
        """What is not written by `CLOSE_S` is lost."""
        task, self._task = self._task, None
        if task is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.flush()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._in_thread(self._file.close)
        self._thread.shutdown(wait=False)

    def _rouse(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await self._linger(LINGER_S)
            self._wake.clear()
            self._hurry.clear()
            try:
                await self._drain()
            except Exception as error:
                self._failed(error)
                self._idle.set()
                await self._linger(PAUSE_S)
                self._wake.set()
                continue
            self._away = False
            if not self._wake.is_set():
                self._idle.set()

    async def _linger(self, seconds: float) -> None:
        """Not for whoever is in a hurry."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()

    async def _drain(self) -> None:
        while self._wipe:
            self._wipe = False
            try:
                await self._in_thread(self._file.wipe)
            except StoreError:
                self._wipe = True
                raise
        while self._waiting:
            batch = dict(islice(self._waiting.items(), BATCH))
            await self._in_thread(partial(self._write, batch))
            for number, waiting in batch.items():
                if self._waiting.get(number, self) is waiting:  # else it was forgotten meanwhile
                    del self._waiting[number]
        if cleaning := self._cleaning:
            await self._in_thread(self._file.compact if cleaning == "compact" else self._file.scrub)
            if self._cleaning == cleaning and not self._waiting:
                self._cleaning = ""

    def _write(self, batch: dict[int, Waiting | None]) -> None:
        records = [(number, encode_record(*waiting)) for number, waiting in batch.items() if waiting is not None]
        self._file.write(records, [number for number, waiting in batch.items() if waiting is None])

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, StoreError):  # a bug of ours in one entry must not end the keeping of all others
            log.exception("an entry can't be written: the cache's file begins anew")
            self.wipe()
        elif not self._away:
            log.warning("the cache's file can't be written (%s): it is tried again, and answers go on", error)
        self._away = True

    def _in_thread(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work)
