"""Runs batches in this process: takes those that nobody runs, keeps their leases, puts them back when it stops.

A lease in the database names the gateway that runs a batch and is renewed while it does. One that ran out says that
its gateway is gone: another goes on where the results end. Nobody writes a result under a lease that is another's.
"""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from gateway.batches.asking import Asking, PutBack
from gateway.batches.capacity import IdleCapacity
from gateway.batches.run import Run
from gateway.batches.types import LeaseLost
from gateway.house import House
from gateway.ids import new_id
from gateway.pipeline import Pipeline
from gateway.store.batches import claim_batch, release_leases, renew_leases
from gateway.store.errors import StoreError

MAX_RUNS = 4  # batches at once, each of another tenant: one with many lines does not keep the others waiting
LOOK_INTERVAL_S = 2.0

log = logging.getLogger("tollhouse.batches")


class Worker:
    """`start` before use, `aclose` after."""

    def __init__(self, house: House, pipeline: Pipeline, *, lease_s: float = 10.0) -> None:
        self._house = house
        self._owner = new_id()
        self._lease_s = lease_s
        capacity = IdleCapacity(lambda: house.snapshot.config.batch.concurrency, lambda: house.doors.num_inside)
        self._asking = Asking(house, pipeline, capacity)
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._nudged = asyncio.Event()
        self._leased_until = 0.0  # of the loop's clock: all leases are renewed at once
        self._looking: asyncio.Task[None] | None = None
        self._waits = False  # for the database; said once when it begins, and when it ends

    async def start(self) -> None:
        self._house.batches.on_change = self._nudged.set
        self._looking = asyncio.create_task(self._look_forever(), name="batches")

    async def aclose(self) -> None:
        """What is under way is cut off and goes back: it runs again elsewhere, or here at the next start."""
        for id in self._runs:
            log.info("%s is put back", id)
        for task in (self._looking, *self._tasks.values()):
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, (self._looking, *self._tasks.values())), return_exceptions=True)
        try:
            await release_leases(self._house.database, self._owner)
        except StoreError as error:
            log.warning("batches can't be put back, others take them in %g s: %s", self._lease_s, error)

    async def _look_forever(self) -> None:
        while True:
            self._nudged.clear()
            try:
                await self._renew()
                while await self._take_one():
                    pass
            except StoreError as error:
                if not self._waits:
                    log.warning("batches wait for the database: %s", error)
                self._waits = True
            else:
                if self._waits:
                    log.info("batches go on")
                self._waits = False
            self._doubt()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_INTERVAL_S, self._lease_s / 5)):
                    await self._nudged.wait()

    async def _take_one(self) -> bool:
        """Whether there was a batch to be run."""
        house = self._house
        if not house.snapshot.config.batch.concurrency or house.doors.closed or len(self._runs) >= MAX_RUNS:
            return False
        now = datetime.now(UTC)
        busy = {run.batch.tenant_id for run in self._runs.values()}
        batch = await claim_batch(house.database, self._owner, now, now + self._lease, busy)
        if batch is None:
            return False
        if not self._runs:
            self._leased_until = asyncio.get_running_loop().time() + self._lease_s
        run = self._runs[batch.id] = Run(house, self._asking, self._owner, batch)
        task = self._tasks[batch.id] = asyncio.create_task(self._run(run), name=batch.id)
        task.add_done_callback(partial(self._done, batch.id))
        return True

    async def _run(self, run: Run) -> None:
        try:
            await run.run()
        except PutBack:
            log.info("%s is put back", run.batch.id)
        except LeaseLost as error:
            log.warning("%s", error)
        except StoreError as error:
            log.warning("%s waits for the database: %s", run.batch.id, error)
        except Exception as error:
            log.exception("%s failed inside the gateway", run.batch.id, exc_info=error)

    def _done(self, id: str, task: "asyncio.Task[None]") -> None:
        """Ended, or stopped by a fault: then its lease runs out, and somebody tries again."""
        del self._runs[id], self._tasks[id]
        self._nudged.set()

    async def _renew(self) -> None:
        """Raises StoreError."""
        if not self._runs:
            return
        asked = asyncio.get_running_loop().time()
        ids = list(self._runs)
        left = await renew_leases(self._house.database, self._owner, ids, datetime.now(UTC) + self._lease)
        self._leased_until = asked + self._lease_s
        for id in ids:
            if (run := self._runs.get(id)) is None:
                continue
            if id not in left:
                self._tasks[id].cancel()
                continue
            run.leased.set()
            run.cancelled = run.cancelled or left[id] == "cancelling"

    def _doubt(self) -> None:
        """Asks no further lines where leases may have run out unnoticed."""
        if asyncio.get_running_loop().time() > self._leased_until - self._lease_s / 3:
            for run in self._runs.values():
                run.leased.clear()

    @property
    def _lease(self) -> timedelta:
        return timedelta(seconds=self._lease_s)
