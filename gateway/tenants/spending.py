"""What the ledger knows of spending, brought into the counts: before a period's first reservation, and now and then.

Counts are only ever raised to the ledger's sum, so doing it twice, or in two gateways at once, counts nothing twice.
What a crash or a Redis that forgot had taken from them comes back that way.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from gateway.store.errors import StoreError
from gateway.tenants.periods import Period, PeriodKind, period_at
from gateway.tenants.redis_link import RedisAway
from gateway.tenants.refusals import CountsAway
from gateway.tenants.tally import Balance, Counts
from gateway.tenants.terms import Allowance, KeySpending, Terms

log = logging.getLogger("tollhouse.budgets")
_DAY_S = 86_400
_PATIENCE_S = 5.0  # a request waits no longer for the ledger's sum
_RETRY_S = 1.0


class Books(Protocol):
    async def spent_by_key(self, tenant_id: str, period: Period) -> Sequence[KeySpending]:
        """What each key of a tenant spent in a period, all that we have settled included. Raises StoreError."""


class NoBooks:
    async def spent_by_key(self, tenant_id: str, period: Period) -> Sequence[KeySpending]:
        return ()


NO_LEDGER = NoBooks()


class Spending:
    """`counts` says where to count at present; `aclose` after use."""

    def __init__(self, books: Books, *, interval_s: float = 60.0) -> None:
        self.counts: Callable[[], Counts] | None = None
        self.watch: Callable[[tuple[Balance, ...]], None] = lambda balances: None
        self._books = books
        self._interval_s = interval_s
        self._used: dict[tuple[str, int], tuple[Terms, float]] = {}  # by the last owner and the day
        self._known: dict[tuple[str, str], tuple[str, Allowance]] = {}  # looked up, by owner and kind of period
        self._under_way: dict[tuple[object, ...], asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def seed(self, counts: Counts, tenant_id: str, allowances: tuple[Allowance, ...], at: float) -> None:
        """For all who ask at once, the ledger is asked once. Raises CountsAway, RedisAway."""
        wanted = [(allowance, period_at(allowance.period, at)) for allowance in allowances]
        key = (id(counts), tenant_id, *((allowance.owner.id, period.label) for allowance, period in wanted))
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._look_up(counts, tenant_id, wanted))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        await asyncio.shield(task)

    def doubtful(self, allowances: tuple[Allowance, ...]) -> tuple[Allowance, ...]:
        """Those that have to be looked up before they are reserved from, whatever the counts say."""
        return tuple(each for each in allowances if (each.owner.id, each.period) not in self._known)

    def doubt(self, owned: Iterable[tuple[str, PeriodKind]]) -> None:
        """These owners had no budget for such a period until now: what they spent meanwhile was not counted."""
        for each in owned:
            self._known.pop(each, None)

    def used(self, terms: Terms, at: float) -> None:
        """Something was spent under these terms: they are looked up again in due time."""
        self._used[terms.allowances[-1].owner.id, int(at // _DAY_S)] = (terms, at)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_forever(), name="look up spending")

    def look_again(self, terms: Terms, at: float) -> None:
        """The counts may have lost something: at once."""
        if terms.allowances:
            self.used(terms, at)
            self._wake.set()

    def look_again_at_all(self) -> None:
        now = time.time()
        for tenant_id, allowance in self._known.values():
            self.look_again(Terms(tenant_id=tenant_id, allowances=(allowance,)), now)

    async def aclose(self) -> None:
        tasks = [*self._under_way.values(), *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval_s * random.uniform(0.8, 1.2)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            used, self._used = self._used, {}
            try:
                await self._look_again(used.values())
            except Exception as error:
                if not isinstance(error, CountsAway | RedisAway):
                    log.exception("spending can't be looked up", exc_info=error)
                self._used = used | self._used
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def _look_again(self, used: Iterable[tuple[Terms, float]]) -> None:
        assert self.counts is not None
        by_tenant: dict[str, dict[tuple[str, str], tuple[Allowance, Period]]] = {}
        for terms, at in used:
            found = by_tenant.setdefault(terms.tenant_id, {})
            for allowance in terms.allowances:
                period = period_at(allowance.period, at)
                found[allowance.owner.id, period.label] = (allowance, period)
        for tenant_id, wanted in by_tenant.items():
            await self._look_up(self.counts(), tenant_id, list(wanted.values()))

    async def _look_up(self, counts: Counts, tenant_id: str, wanted: list[tuple[Allowance, Period]]) -> None:
        spent: dict[str, Sequence[KeySpending]] = {}
        try:
            async with asyncio.timeout(_PATIENCE_S):
                for label, period in {period.label: period for _, period in wanted}.items():
                    spent[label] = await self._books.spent_by_key(tenant_id, period)
        except (StoreError, TimeoutError) as error:
            log.warning("the ledger can't be asked what was spent: %s", error or "no answer in time")
            raise CountsAway("What was spent so far can't be counted at the moment. Please try again.") from error
        for allowance, _ in wanted:
            self._known[allowance.owner.id, allowance.period] = (tenant_id, allowance)
        sums = tuple(
            Balance(allowance, period, sum(each.nanousd for each in spent[period.label] if each.is_of(allowance.owner)))
            for allowance, period in wanted
        )
        self.watch(await counts.raise_to(tenant_id, sums))


class LedgerBooks:
    """The ledger's own sums: `drain` brings what this gateway has settled into SQL, where `select` adds it up."""

    def __init__(
        self, drain: Callable[[], Awaitable[None]], select: Callable[[str, Period], Awaitable[Sequence[KeySpending]]]
    ) -> None:
        self._drain = drain
        self._select = select

    async def spent_by_key(self, tenant_id: str, period: Period) -> Sequence[KeySpending]:
        await self._drain()
        return await self._select(tenant_id, period)
