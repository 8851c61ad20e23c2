"""All budgets in memory, by their owner; a change of the table by another process is noticed within `interval_s`."""

from collections.abc import Callable, Mapping

from gateway.store.budgets import select_budgets
from gateway.store.database import Database
from gateway.store.versions import VersionWatch
from gateway.tenants.types import Budget


class BudgetBook:
    """`take` is given all of them, by their owner's id, at the start and after each change. `start` before use."""

    def __init__(
        self, database: Database, take: Callable[[Mapping[str, tuple[Budget, ...]]], None], *, interval_s: float = 0.5
    ) -> None:
        self._database = database
        self._take = take
        self._watch = VersionWatch(database, "budgets", self._reload, interval_s)

    async def start(self) -> None:
        """Raises StoreError."""
        await self._watch.start()

    async def poll(self) -> None:
        """Looks now."""
        await self._watch.poll()

    async def aclose(self) -> None:
        await self._watch.aclose()

    async def _reload(self) -> None:
        by_owner: dict[str, tuple[Budget, ...]] = {}
        for budget in await select_budgets(self._database):
            by_owner[budget.owner_id] = (*by_owner.get(budget.owner_id, ()), budget)
        self._take(by_owner)
