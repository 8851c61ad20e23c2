"""Responses that run in the background: nobody has to wait for them, and whoever wants to may listen.

A run's row carries a lease that this process renews. A lease that ran out says that its gateway is gone, and a row
that is cancelled or deleted through another gateway ends the run here at the next renewal.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from gateway.answer import Answer, StreamAnswer
from gateway.errors import InternalError, OverloadedError
from gateway.responses.run import Run
from gateway.responses.shelf import Shelf
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.responses import insert_response, renew_leases

LEASE_S = 10.0
RENEW_INTERVAL_S = 3.0
LINGER_S = 300.0  # how long the events of a run that has ended can still be listened to
MAX_LINGERING_BYTES = 64 * 2**20  # of all such events; the oldest runs are forgotten first

log = logging.getLogger("tollhouse.responses")

OnAdmitted = Callable[[], Awaitable[None]]
Serve = Callable[[OnAdmitted], Awaitable[Answer | StreamAnswer]]


class Runs:
    def __init__(self, database: Database, shelf: Shelf) -> None:
        self._database = database
        self._shelf = shelf
        self._runs: dict[str, Run] = {}
        self._lingering: dict[str, int] = {}  # bytes of the events of runs that have ended, the oldest first
        self._renewing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._renewing = asyncio.create_task(self._renew_forever(), name="responses-leases")

    async def aclose(self) -> None:
        """What still runs is stored as failed: it would be lost otherwise, and nobody would know."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        for run in list(self._runs.values()):
            run.stop(OverloadedError("The gateway that ran this response was stopped."))
        await asyncio.gather(*tasks, return_exceptions=True)

    def get(self, tenant_id: str, id: str) -> Run | None:
        run = self._runs.get(id)
        return run if run is not None and run.stored.tenant_id == tenant_id else None

    def forget(self, id: str) -> None:
        self._runs.pop(id, None)
        self._lingering.pop(id, None)

    async def begin(self, run: Run, turns: Sequence[str], serve: Serve) -> Answer | None:
        """Returns once the run is admitted and has its row; else with the answer that says why it isn't.

        `turns`: the ids of the conversation's earlier responses. Raises ApiError for what is refused at the gate.
        """
        admitted = asyncio.Event()

        async def on_admitted() -> None:
            leased = replace(run.stored, lease_until=_lease())
            try:
                await insert_response(self._database, leased, turns)
            except StoreError as error:
                raise OverloadedError(
                    "the database is away; please retry later", headers={"retry-after": "5"}
                ) from error
            self._runs[run.stored.id] = run
            run.begin()
            admitted.set()

        run.task = asyncio.create_task(self._serve(run, serve, on_admitted), name=f"run {run.stored.id}")
        waiting = asyncio.create_task(admitted.wait())
        await asyncio.wait({run.task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return None if admitted.is_set() else run.task.result()

    async def _serve(self, run: Run, serve: Serve, on_admitted: OnAdmitted) -> Answer | None:
        """The answer of a request that was not admitted."""
        try:
            told = await serve(on_admitted)
            if run.stored.id not in self._runs:
                assert isinstance(told, Answer)
                return told
            await run.hear(told)
        except asyncio.CancelledError:
            if run.stored.id not in self._runs:
                raise
            run.stopped()
        except Exception as error:
            if run.stored.id not in self._runs:
                raise
            log.exception("the response %s failed inside the gateway", run.stored.id, exc_info=error)
            run.fail(InternalError("The gateway failed in mid-answer."))
        await self._end(run)
        return None

    async def _end(self, run: Run) -> None:
        await self._shelf.keep(run.current)
        run.close()
        if run.streams:
            self._linger(run)
        else:
            self.forget(run.stored.id)

    def _linger(self, run: Run) -> None:
        self._lingering[run.stored.id] = run.num_bytes
        asyncio.get_running_loop().call_later(LINGER_S, self.forget, run.stored.id)
        while sum(self._lingering.values()) > MAX_LINGERING_BYTES:
            self.forget(next(iter(self._lingering)))

    async def renew(self) -> None:
        """Raises StoreError."""
        running = [id for id, run in self._runs.items() if not run.over]
        if not running:
            return
        left = await renew_leases(self._database, running, _lease())
        for id in running:
            if id not in left and (run := self._runs.get(id)) is not None:
                run.stop()

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(RENEW_INTERVAL_S)
            try:
                await self.renew()
            except StoreError as error:
                log.warning("the leases of running responses can't be renewed: %s", error)


def _lease() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=LEASE_S)
