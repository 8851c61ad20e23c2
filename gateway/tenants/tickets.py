"""One admitted request and what it has taken: counted, reserved at its worst case, settled at what it really used."""

import time

from gateway.tenants.counting import Counting
from gateway.tenants.refusals import never_fits, rate_headers, refusal, warning_header
from gateway.tenants.shared_counts import RedisAway
from gateway.tenants.tally import Balance, Claim, Counts, Standing, Tally


class Ticket:
    """One admitted request. This class itself is the ticket of a key without limits and budgets."""

    __slots__ = ()

    @property
    def counts_dollars(self) -> bool:
        """Whether what a request may cost is of interest."""
        return False

    async def reserve(self, tokens: int, cost_nanousd: int = 0) -> None:
        """What the request may use at most; again with larger numbers adds to it. Raises RateLimitError, CountsAway."""

    async def settle(self, tokens: int = 0, cost_nanousd: int = 0) -> None:
        """What it used in the end. May be called more than once; the first call counts."""

    def headers(self) -> dict[str, str]:
        """OpenAI's x-ratelimit-* headers for the limits that apply, and a warning of a budget that is running out."""
        return {}


UNLIMITED = Ticket()


class CountedTicket(Ticket):
    __slots__ = ("_balances", "_claim", "_counting", "_counts", "_requests", "_settled", "_tokens")

    def __init__(self, claim: Claim, counting: Counting) -> None:
        self._claim = claim
        self._counting = counting
        self._counts: Counts = counting.here()
        self._requests: tuple[Standing, ...] = ()
        self._tokens: tuple[Standing, ...] = ()
        self._balances: tuple[Balance, ...] = ()
        self._settled = False

    @property
    def counts_dollars(self) -> bool:
        return bool(self._claim.terms.allowances)

    async def admit(self) -> None:
        """Counts the request and takes its slots. Raises RateLimitError, and has then taken nothing."""
        try:
            tally = await self._counts.admit(self._claim)
        except RedisAway:
            self._counts = self._counting.leave_redis(self._claim)
            tally = await self._counts.admit(self._claim)
        self._requests = tally.standings
        if tally.refused is not None:
            raise refusal(tally, time.time())

    async def reserve(self, tokens: int, cost_nanousd: int = 0) -> None:
        claim = self._claim
        more_tokens = max(0, tokens - claim.tokens) if claim.terms.tokens else 0
        more_cost = max(0, cost_nanousd - claim.cost_nanousd) if claim.terms.allowances else 0
        if not (more_tokens or more_cost):
            return
        if (never := never_fits(claim.terms, tokens, cost_nanousd)) is not None:
            raise never
        tally = await self._take(more_tokens, more_cost)
        self._tokens, self._balances = tally.standings or self._tokens, tally.balances or self._balances
        if tally.refused is not None:
            if isinstance(tally.refused, Balance):
                self._counting.watch.refused(tally.refused)
            raise refusal(tally, time.time())

    async def _take(self, tokens: int, cost_nanousd: int) -> Tally:
        claim = self._claim
        try:
            return await self._counting.reserve(self._counts, claim, tokens, cost_nanousd)
        except RedisAway:
            tokens, cost_nanousd = claim.tokens + tokens, claim.cost_nanousd + cost_nanousd
            self._counts = self._counting.leave_redis(claim)
            return await self._counting.reserve(self._counts, claim, tokens, cost_nanousd)

    async def settle(self, tokens: int = 0, cost_nanousd: int = 0) -> None:
        if self._settled:
            return
        self._settled = True
        balances = await self._counting.settle(self._counts, self._claim, tokens, cost_nanousd)
        self._balances = balances or self._balances

    def headers(self) -> dict[str, str]:
        return rate_headers((*self._requests, *self._tokens)) | warning_header(self._balances)
