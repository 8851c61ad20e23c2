"""One admitted request and what it has taken: counted, reserved at its worst case, settled at what it really used."""

import time

import msgspec

from gateway.tenants.counting import Counting
from gateway.tenants.refusals import HeaderPairs, never_fits, rate_headers, refusal, warning_header
from gateway.tenants.shared_counts import RedisAway
from gateway.tenants.tally import Balance, Claim, Counts, Standing


class Ticket(msgspec.Struct):
    """One admitted request. This class itself is the ticket of a key without limits and budgets."""

    @property
    def counts_dollars(self) -> bool:
        """Whether what a request may cost is of interest."""
        return False

    async def reserve(self, tokens: int, cost_nanousd: int = 0) -> None:
        """What the request may use at most; again with larger numbers adds to it. Raises RateLimitError, CountsAway."""

    async def settle(self, tokens: int = 0, cost_nanousd: int = 0) -> None:
        """What it used in the end. May be called more than once; the first call counts."""

    def headers(self) -> HeaderPairs:
        """OpenAI's x-ratelimit-* headers for the limits that apply, and a warning of a budget that is running out."""
        return []


UNLIMITED = Ticket()


class CountedTicket(Ticket):
    claim: Claim
    counting: Counting
    counts: Counts
    requests: tuple[Standing, ...] = ()
    tokens: tuple[Standing, ...] = ()
    balances: tuple[Balance, ...] = ()
    settled: bool = False

    @property
    def counts_dollars(self) -> bool:
        return bool(self.claim.terms.allowances)

    async def admit(self) -> None:
        """Counts the request and takes its slots. Raises RateLimitError, and has then taken nothing."""
        try:
            tally = await self.counts.admit(self.claim)
        except RedisAway:
            self.counts = self.counting.leave_redis(self.claim)
            tally = await self.counts.admit(self.claim)
        self.requests = tally.standings
        if tally.refused is not None:
            raise refusal(tally, time.time())

    async def reserve(self, tokens: int, cost_nanousd: int = 0) -> None:
        claim, counting = self.claim, self.counting
        more_tokens = max(0, tokens - claim.tokens) if claim.terms.tokens else 0
        more_cost = max(0, cost_nanousd - claim.cost_nanousd) if claim.terms.allowances else 0
        if not (more_tokens or more_cost):
            return
        if (never := never_fits(claim.terms, tokens, cost_nanousd)) is not None:
            raise never
        try:
            tally = await counting.reserve(self.counts, claim, more_tokens, more_cost)
        except RedisAway:
            more_tokens, more_cost = claim.tokens + more_tokens, claim.cost_nanousd + more_cost
            self.counts = counting.leave_redis(claim)
            tally = await counting.reserve(self.counts, claim, more_tokens, more_cost)
        self.tokens, self.balances = tally.standings or self.tokens, tally.balances or self.balances
        if tally.refused is not None:
            if isinstance(tally.refused, Balance):
                counting.watch.refused(tally.refused)
            raise refusal(tally, time.time())

    async def settle(self, tokens: int = 0, cost_nanousd: int = 0) -> None:
        if self.settled:
            return
        self.settled = True
        balances = await self.counting.settle(self.counts, self.claim, tokens, cost_nanousd)
        self.balances = balances or self.balances

    def headers(self) -> HeaderPairs:
        told = rate_headers(self.requests + self.tokens)
        return told + warning_header(self.balances) if self.balances else told
