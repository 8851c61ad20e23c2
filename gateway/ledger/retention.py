"""Takes out what was kept for learning once it is old enough. The money stays."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from gateway.ids import id_at
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.retention import delete_decisions
from gateway.store.tenants import select_tenants

SWEEP_INTERVAL_S = 300.0
_DAY_S = 86_400.0

log = logging.getLogger("tollhouse.ledger")


class Retention:
    """`start` before use, `aclose` after. `days`: for tenants without a number of their own; 0: for ever."""

    def __init__(self, database: Database, days: Callable[[], float]) -> None:
        self._database = database
        self._days = days
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._sweep_forever(), name="retention")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def sweep(self) -> int:
        """Returns how many decisions went. Raises StoreError."""
        tenants = await select_tenants(self._database)
        own = {tenant.id: float(tenant.retention_days) for tenant in tenants if tenant.retention_days is not None}
        return await self._sweep_own(own) + await self._sweep_others(own)

    async def _sweep_own(self, own: Mapping[str, float]) -> int:
        num_gone = 0
        for tenant_id, days in own.items():
            while days and (num := await delete_decisions(self._database, _oldest_kept(days), of=tenant_id)):
                num_gone += num
        return num_gone

    async def _sweep_others(self, own: Mapping[str, float]) -> int:
        num_gone = 0
        while (days := self._days()) and (
            num := await delete_decisions(self._database, _oldest_kept(days), but_of=own)
        ):
            num_gone += num
        return num_gone

    async def _sweep_forever(self) -> None:
        while True:
            try:
                if num_gone := await self.sweep():
                    log.info("%d decisions are older than they are kept, and gone", num_gone)
            except StoreError as error:
                log.warning("decisions can't be taken out for now: %s", error)
            await asyncio.sleep(SWEEP_INTERVAL_S)


def _oldest_kept(days: float) -> str:
    return id_at(time.time() - days * _DAY_S)
