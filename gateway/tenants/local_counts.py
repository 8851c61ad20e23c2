"""Limits and budgets counted in this process. Nothing here awaits, so every step is atomic on the event loop.

A bucket holds one minute's quota and refills continuously; it goes below zero when a request used more than it had
reserved, and its owner then waits until that is paid back.
"""

import time
from collections import defaultdict
from collections.abc import Hashable
from typing import TypeVar

from gateway.tenants.periods import period_at
from gateway.tenants.tally import WINDOW_S, Balance, Claim, Standing, Tally, Unseeded, What
from gateway.tenants.terms import Allowance, Quota

OLD_S = 86_400.0  # after its end, a period's spending is forgotten: no request runs for so long
Key = TypeVar("Key", bound=Hashable)
NOTHING_DRAWN = Tally(None)


class Bucket:
    __slots__ = ("_at", "_level")

    def __init__(self, limit: int, now: float) -> None:
        self._level = float(limit)
        self._at = now

    def level(self, limit: int, now: float) -> float:
        self._level = min(float(limit), self._level + (now - self._at) * limit / WINDOW_S)
        self._at = now
        return self._level

    def take(self, amount: float) -> float:
        """Whether there is so much has been seen by `level`."""
        self._level -= amount
        return self._level

    def give_back(self, amount: float, limit: int, now: float) -> None:
        """A negative amount takes what was used beyond the reservation."""
        self._level = min(float(limit), self.level(limit, now) + amount)


class LocalCounts:
    """Implements `gateway.tenants.tally.Counts`."""

    def __init__(self) -> None:
        self._buckets: dict[What, dict[str, Bucket]] = {"requests": {}, "tokens": {}}  # by their owner's id
        self._running: defaultdict[str, int] = defaultdict(int)  # requests, by their owner's id
        self._held: defaultdict[tuple[str, str], int] = defaultdict(int)  # nano-dollars, by owner and period
        self._spent: dict[tuple[str, str], tuple[int, float]] = {}  # nano-dollars, and when the period ends

    async def admit(self, claim: Claim) -> Tally:
        terms = claim.terms
        for quota in terms.slots:
            left = quota.amount - self._running.get(quota.owner.id, 0)
            if left < 1:
                return Tally(Standing("slots", quota, False, float(left), 1.0))
        tally = self._draw("requests", terms.requests, 1.0)
        if tally.refused is None and terms.slots:
            claim.slots = True
            for quota in terms.slots:
                self._running[quota.owner.id] += 1
        return tally

    async def reserve(self, claim: Claim, tokens: int, cost_nanousd: int) -> Tally:
        balances = self._balances(claim, cost_nanousd) if cost_nanousd else ()
        for balance in balances:
            if not balance.admitted:
                return Tally(balance, (), balances)
        tally = self._draw("tokens", claim.terms.tokens, tokens) if tokens else NOTHING_DRAWN
        if tally.refused is not None:
            return tally
        for balance in balances:
            self._held[balance.allowance.owner.id, balance.period.label] += cost_nanousd
        claim.tokens += tokens
        claim.cost_nanousd += cost_nanousd
        return Tally(None, tally.standings, balances) if balances else tally

    async def settle(self, claim: Claim, tokens: int, cost_nanousd: int) -> tuple[Balance, ...]:
        terms = claim.terms
        if claim.slots:
            for quota in terms.slots:
                _lower(self._running, quota.owner.id, 1)
        if claim.tokens != tokens:
            now = time.monotonic()
            for quota in terms.tokens:
                self._bucket("tokens", quota, now).give_back(claim.tokens - tokens, quota.amount, now)
        if not (cost_nanousd or claim.cost_nanousd):
            return ()
        return tuple(self._spend(allowance, claim, cost_nanousd) for allowance in terms.allowances)

    async def raise_to(self, tenant_id: str, balances: tuple[Balance, ...]) -> tuple[Balance, ...]:
        raised = []
        for balance in balances:
            key = (balance.allowance.owner.id, balance.period.label)
            spent = max(balance.spent, self._spent.get(key, (0, 0.0))[0])
            self._spent[key] = (spent, balance.period.end)
            raised.append(Balance(balance.allowance, balance.period, spent))
        if balances:
            self._forget_before(max(balance.period.start for balance in balances) - OLD_S)
        return tuple(raised)

    def _balances(self, claim: Claim, wanted: int) -> tuple[Balance, ...]:
        """Raises Unseeded."""
        found, missing = [], []
        for allowance in claim.terms.allowances:
            period = period_at(allowance.period, claim.at)
            key = (allowance.owner.id, period.label)
            known = self._spent.get(key)
            if known is None:
                missing.append(allowance)
            else:
                found.append(Balance(allowance, period, known[0], self._held.get(key, 0), wanted))
        if missing:
            raise Unseeded(tuple(missing))
        return tuple(found)

    def _spend(self, allowance: Allowance, claim: Claim, cost_nanousd: int) -> Balance:
        """What nobody has seeded yet is left to the ledger, which will know it by then."""
        period = period_at(allowance.period, claim.at)
        key = (allowance.owner.id, period.label)
        if claim.cost_nanousd:
            _lower(self._held, key, claim.cost_nanousd)
        if (known := self._spent.get(key)) is None:
            return Balance(allowance, period, cost_nanousd)
        self._spent[key] = (known[0] + cost_nanousd, known[1])
        return Balance(allowance, period, known[0] + cost_nanousd, self._held.get(key, 0))

    def _draw(self, what: What, quotas: tuple[Quota, ...], wanted: float) -> Tally:
        """From every bucket or from none."""
        now, drawn = time.monotonic(), []
        for quota in quotas:
            bucket = self._bucket(what, quota, now)
            level = bucket.level(quota.amount, now)
            if wanted > level:
                refused = Standing(what, quota, False, level, wanted)
                return Tally(refused, (refused,))
            drawn.append((quota, bucket))
        return Tally(None, tuple([Standing(what, quota, True, bucket.take(wanted)) for quota, bucket in drawn]))

    def _bucket(self, what: What, quota: Quota, now: float) -> Bucket:
        buckets = self._buckets[what]
        bucket = buckets.get(quota.owner.id)
        if bucket is None:
            bucket = buckets[quota.owner.id] = Bucket(quota.amount, now)
        return bucket

    def _forget_before(self, moment: float) -> None:
        for key in [key for key, (_, end) in self._spent.items() if end < moment]:
            del self._spent[key]


def _lower(counts: defaultdict[Key, int], key: Key, amount: int) -> None:
    counts[key] -= amount
    if counts[key] <= 0:
        del counts[key]
