"""Where to count at present: in Redis when gateways share tenants, in this process when they don't or Redis is away.

Spending that nobody has counted yet is asked of the ledger first (`gateway.tenants.spending`).
"""

from collections.abc import Awaitable
from typing import Literal, Protocol

from gateway.tenants.local_counts import LocalCounts
from gateway.tenants.refusals import CountsAway
from gateway.tenants.shared_counts import RedisAway, SharedCounts
from gateway.tenants.spending import Spending
from gateway.tenants.tally import Balance, Claim, Counts, Tally, Unseeded

WhenAway = Literal["local", "refuse"]
_NUM_SEEDINGS = 3  # one is enough, unless Redis forgets again in the same moment


class Watch(Protocol):
    """Who looks on: warnings and webhooks come from here. Called on a request's way, so it takes no time."""

    def spent(self, balances: tuple[Balance, ...]) -> None: ...
    def refused(self, balance: Balance) -> None: ...


class Nobody:
    def spent(self, balances: tuple[Balance, ...]) -> None: ...
    def refused(self, balance: Balance) -> None: ...


class Counting:
    def __init__(
        self,
        shared: SharedCounts | None,
        spending: Spending,
        watch: Watch,
        when_away: WhenAway = "local",
    ) -> None:
        self.when_away: WhenAway = when_away
        self.spending = spending
        self.watch = watch
        self._shared = shared
        self._local = LocalCounts()
        spending.counts, spending.watch = self.here, watch.spent
        if shared is not None:
            shared.on_new_epoch = spending.look_again

    @property
    def is_shared(self) -> bool:
        return self._shared is not None and self._shared.available

    def here(self) -> Counts:
        """Raises CountsAway where counting alone is not wanted."""
        if self._shared is None:
            return self._local
        if self._shared.available:
            return self._shared
        return self.alone()

    def alone(self) -> LocalCounts:
        """This process's own counts, for as long as Redis is away. Raises CountsAway."""
        if self.when_away == "refuse":
            raise CountsAway("Limits can't be checked at the moment. Please try again.")
        return self._local

    def rejoin(self) -> None:
        """Redis is back: what was counted here alone is in the ledger, and looked up there."""
        self._local = LocalCounts()
        self.spending.look_again_at_all()

    def reserve(self, counts: Counts, claim: Claim, tokens: int, cost_nanousd: int) -> Awaitable[Tally]:
        """Raises RedisAway, CountsAway."""
        if cost_nanousd:
            return self._reserve_dollars(counts, claim, tokens, cost_nanousd)
        return counts.reserve(claim, tokens, 0)

    async def _reserve_dollars(self, counts: Counts, claim: Claim, tokens: int, cost_nanousd: int) -> Tally:
        if doubtful := self.spending.doubtful(claim.terms.allowances):
            await self.spending.seed(counts, claim.terms.tenant_id, doubtful, claim.at)
        for _ in range(_NUM_SEEDINGS):
            try:
                return await counts.reserve(claim, tokens, cost_nanousd)
            except Unseeded as missing:
                await self.spending.seed(counts, claim.terms.tenant_id, missing.allowances, claim.at)
        raise CountsAway("What was spent so far can't be counted at the moment. Please try again.")

    def leave_redis(self, claim: Claim) -> LocalCounts:
        """What a request had taken there is given up: its lease ends and its buckets refill. Raises CountsAway."""
        assert self._shared is not None
        self._shared.leases.forget(claim)
        claim.slots, claim.tokens, claim.cost_nanousd = False, 0, 0
        return self.alone()

    async def settle(self, counts: Counts, claim: Claim, tokens: int, cost_nanousd: int) -> tuple[Balance, ...]:
        try:
            balances = await counts.settle(claim, tokens, cost_nanousd)
        except RedisAway:  # its lease ends and its buckets refill by themselves; what it spent is in the ledger
            self.spending.look_again(claim.terms, claim.at)
            return ()
        if balances:
            self.watch.spent(balances)
            if counts is (self._shared if self.is_shared else self._local):
                self.spending.used(claim.terms, claim.at)
            else:  # counted where nobody counts any more
                self.spending.look_again(claim.terms, claim.at)
        return balances

    async def aclose(self) -> None:
        await self.spending.aclose()
        if self._shared is not None:
            await self._shared.aclose()
