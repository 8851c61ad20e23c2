"""One batch from wherever it stands to its end: check the file, ask the lines, write the files.

It may be stopped at any point, and another gateway goes on: what is answered is in the database, line by line.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from gateway.batches.asking import Asking, PutBack
from gateway.batches.lines import check_lines, read_lines
from gateway.batches.output import OutputFile
from gateway.batches.types import Batch, Result, Status
from gateway.errors import ApiError
from gateway.house import House
from gateway.store.batches import begin_lines, finish_batch, insert_result, select_answered, update_batch
from gateway.store.errors import DuplicateRow, StoreUnavailable
from gateway.wire.batch_lines import Fault, Line, parse_line, unanswered_line

RETRY_INTERVAL_S = 1.0
LAST_WORDS_S = 5.0  # for results in hand to reach the database when the gateway stops
UNANSWERED = {
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "cancelled": ("batch_cancelled", "This request was not executed because the batch was cancelled."),
}

log = logging.getLogger("tollhouse.batches")


class Run:
    def __init__(self, house: House, asking: Asking, owner: str, batch: Batch) -> None:
        self.batch = batch
        self.cancelled = batch.cancelling_at is not None  # no further lines are asked
        self.leased = asyncio.Event()  # cleared while it is not sure that the batch is still ours
        self.leased.set()
        self._house = house
        self._asking = asking
        self._owner = owner
        self._storing: set[asyncio.Task[None]] = set()
        self._max_line_bytes = int(house.snapshot.config.server.max_body_mb * 1_000_000)

    async def run(self) -> None:
        """Raises LeaseLost, PutBack and StoreError: others go on then."""
        if self.batch.num_lines == 0 and not self.cancelled and not await self._check():
            return
        if self.batch.num_lines:
            await self._ask_all()
        await self._finish()

    @property
    def _stopped(self) -> Status | None:
        """Why no further lines are asked."""
        if self.cancelled:
            return "cancelled"
        return "expired" if datetime.now(UTC) >= self.batch.expires_at else None

    async def _check(self) -> bool:
        """Whether the input file can be run."""
        batch, house, now = self.batch, self._house, datetime.now(UTC)
        try:
            scope = house.authenticator.recall(batch.key_id, batch.endpoint).key.scope
            num_lines, faults = await check_lines(house, batch, scope, self._max_line_bytes)
        except ApiError as error:
            num_lines, faults = 0, [Fault(error.name, error.message)]
        if not faults:
            await begin_lines(house.database, self._owner, batch.id, num_lines, now)
            self.batch = replace(batch, num_lines=num_lines)
            return True
        errors = msgspec.json.encode(faults).decode()
        await finish_batch(
            house.database, self._owner, batch.id, [], {"status": "failed", "errors": errors, "ended_at": now}
        )
        log.info("%s failed: %s", batch.id, faults[0].message)
        return False

    async def _ask_all(self) -> None:
        """Several lines at a time, as many as there is capacity for."""
        answered = await select_answered(self._house.database, self.batch.id)
        asking: set[asyncio.Task[None]] = set()
        try:
            async for number, line in self._lines():
                if self._stopped:
                    break
                if number in answered:
                    continue
                await self.leased.wait()
                if self._house.doors.closed:
                    raise PutBack
                while len(asking) >= max(1, self._house.snapshot.config.batch.concurrency):
                    asking = await _one_less(asking)
                asking.add(asyncio.create_task(self._ask(number, line), name=f"{self.batch.id} line {number}"))
            while asking:
                asking = await _one_less(asking)
        except PutBack:
            await asyncio.gather(
                *asking, return_exceptions=True
            )  # what is under way is paid for, and kept if it can be
            raise
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            if self._storing:
                _, late = await asyncio.wait(self._storing, timeout=LAST_WORDS_S)
                for task in late:
                    task.cancel()

    async def _ask(self, number: int, line: Line) -> None:
        if self._stopped:
            return
        result = await self._asking.ask(self.batch, number, line)
        storing = asyncio.create_task(self._store(result), name=f"{self.batch.id} result {number}")
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)
        await asyncio.shield(storing)  # it is paid for: whoever stops us now waits for it

    async def _store(self, result: Result) -> None:
        """As soon as the database is there."""
        while True:
            try:
                await insert_result(self._house.database, self._owner, self.batch.id, result)
                return
            except DuplicateRow:
                return  # it had got there, and only the database's word for it was lost
            except StoreUnavailable as error:
                log.warning("an answer of %s waits for the database: %s", self.batch.id, error)
                await asyncio.sleep(RETRY_INTERVAL_S)

    async def _lines(self) -> AsyncIterator[tuple[int, Line]]:
        """The file was checked, and does not change: what a line may hold may have been lowered since."""
        async for number, raw in read_lines(self._house.files, self.batch.input_file_id, sys.maxsize):
            line = parse_line(raw, number, self.batch.endpoint)
            assert isinstance(line, Line)
            yield number, line

    async def _finish(self) -> None:
        house, batch = self._house, self.batch
        ended: Status = self._stopped or "completed"
        await update_batch(house.database, self._owner, batch.id, status="finalizing", finalizing_at=datetime.now(UTC))
        if ended != "completed" and batch.num_lines:
            ended = await self._answer_the_rest(ended)
        files = [await OutputFile(house, batch, ok=ok).write() for ok in (True, False)]
        output, error = (file.id if file is not None else None for file in files)
        values = {"status": ended, "output_file_id": output, "error_file_id": error, "ended_at": datetime.now(UTC)}
        await finish_batch(house.database, self._owner, batch.id, [file for file in files if file is not None], values)
        log.info("%s is %s", batch.id, ended)

    async def _answer_the_rest(self, ended: Status) -> Status:
        """Lines that were not asked are told of in the error file. Where there are none, the batch is complete."""
        answered, num_left = await select_answered(self._house.database, self.batch.id), 0
        async for number, line in self._lines():
            if number not in answered:
                num_left += 1
                told = unanswered_line(line.custom_id, f"{self.batch.id}-{number}", *UNANSWERED[ended])
                await insert_result(self._house.database, self._owner, self.batch.id, Result(number, False, told))
        return ended if num_left or ended == "cancelled" else "completed"


async def _one_less(asking: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Those left once one is done. Raises what it raised."""
    done, left = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return left
