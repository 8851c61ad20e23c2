"""Limits and budgets counted in this process. Nothing here awaits, so every step is atomic on the event loop.

A bucket holds one minute's quota and refills continuously; it goes below zero when a request used more than it had
reserved, and its owner then waits until that is paid back.
"""

import time
from collections import defaultdict
from math import inf

import msgspec

from gateway.tenants.periods import period_at
from gateway.tenants.tally import WINDOW_S, Balance, Claim, Standing, Tally, Unseeded, What
from gateway.tenants.terms import Allowance, Quota, Terms

OLD_S = 86_400.0  # after its end, a period's spending is forgotten: no request runs for so long
NOTHING_DRAWN = Tally(None)


class Bucket:
    __slots__ = ("_at", "_level")

    def __init__(self, limit: int, now: float) -> None:
        self._level = float(limit)
        self._at = now

    def level(self, limit: int, now: float) -> float:
        level = self._level + (now - self._at) * limit / WINDOW_S
        self._at = now
        self._level = level = level if level < limit else float(limit)
        return level

    def take(self, amount: float) -> None:
        """Whether there is so much has been seen by `level`."""
        self._level -= amount

    def give_back(self, amount: float, limit: int, now: float) -> None:
        """A negative amount takes what was used beyond the reservation."""
        level = self.level(limit, now) + amount
        self._level = level if level < limit else float(limit)


class Slots:
    """How many requests of one owner run."""

    __slots__ = ("running",)

    def __init__(self) -> None:
        self.running = 0


class Meters(msgspec.Struct, frozen=True, gc=False):
    """Where a key's requests are counted: each quota that holds for it, with its owner's count."""

    terms: Terms
    slots: tuple[tuple[Quota, Slots], ...]
    requests: tuple[tuple[Quota, Bucket], ...]
    tokens: tuple[tuple[Quota, Bucket], ...]


class LocalCounts:
    """Implements `gateway.tenants.tally.Counts`."""

    def __init__(self) -> None:
        self._meters: dict[str, Meters] = {}  # by their key's id
        self._slots: dict[str, Slots] = {}  # by their owner's id, as all below
        self._requests: dict[str, Bucket] = {}
        self._tokens: dict[str, Bucket] = {}
        self._held: defaultdict[tuple[str, str], int] = defaultdict(int)  # nano-dollars, by owner and period
        self._spent: dict[tuple[str, str], tuple[int, float]] = {}  # nano-dollars, and when the period ends

    async def admit(self, claim: Claim) -> Tally:
        meters = self._meters_of(claim.terms)
        for quota, slots in meters.slots:
            if slots.running >= quota.amount:
                return Tally(Standing("slots", quota, False, float(quota.amount - slots.running), 1.0))
        tally = _draw("requests", meters.requests, 1.0)
        if tally.refused is None and meters.slots:
            claim.slots = True
            for _, slots in meters.slots:
                slots.running += 1
        return tally

    async def reserve(self, claim: Claim, tokens: int, cost_nanousd: int) -> Tally:
        balances = self._balances(claim, cost_nanousd) if cost_nanousd else ()
        for balance in balances:
            if not balance.admitted:
                return Tally(balance, (), balances)
        tally = _draw("tokens", self._meters_of(claim.terms).tokens, tokens) if tokens else NOTHING_DRAWN
        if tally.refused is not None:
            return tally
        claim.tokens += tokens
        if not balances:
            return tally
        for balance in balances:
            self._held[balance.allowance.owner.id, balance.period.label] += cost_nanousd
        claim.cost_nanousd += cost_nanousd
        return Tally(None, tally.standings, balances)

    async def settle(self, claim: Claim, tokens: int, cost_nanousd: int) -> tuple[Balance, ...]:
        meters, unused = self._meters_of(claim.terms), claim.tokens - tokens
        if claim.slots:
            for _, slots in meters.slots:
                slots.running -= 1
        if unused:
            now = time.monotonic()
            for quota, bucket in meters.tokens:
                bucket.give_back(unused, quota.amount, now)
        if not (cost_nanousd or claim.cost_nanousd):
            return ()
        return tuple(self._spend(allowance, claim, cost_nanousd) for allowance in claim.terms.allowances)

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
            self._give_back(key, claim.cost_nanousd)
        if (known := self._spent.get(key)) is None:
            return Balance(allowance, period, cost_nanousd)
        self._spent[key] = (known[0] + cost_nanousd, known[1])
        return Balance(allowance, period, known[0] + cost_nanousd, self._held.get(key, 0))

    def _give_back(self, key: tuple[str, str], held_nanousd: int) -> None:
        self._held[key] -= held_nanousd
        if self._held[key] <= 0:
            del self._held[key]

    def _meters_of(self, terms: Terms) -> Meters:
        meters = self._meters.get(terms.key_id)
        if meters is not None and meters.terms is terms:
            return meters
        meters = self._meters[terms.key_id] = Meters(
            terms,
            tuple((quota, self._slots.setdefault(quota.owner.id, Slots())) for quota in terms.slots),
            _buckets(self._requests, terms.requests),
            _buckets(self._tokens, terms.tokens),
        )
        return meters

    def _forget_before(self, moment: float) -> None:
        for key in [key for key, (_, end) in self._spent.items() if end < moment]:
            del self._spent[key]


def _buckets(buckets: dict[str, Bucket], quotas: tuple[Quota, ...]) -> tuple[tuple[Quota, Bucket], ...]:
    """Those of the quotas' owners. Another amount than before leaves a bucket as full as it is."""
    now = time.monotonic()
    return tuple((quota, buckets.setdefault(quota.owner.id, Bucket(quota.amount, now))) for quota in quotas)


def _draw(what: What, buckets: tuple[tuple[Quota, Bucket], ...], wanted: float) -> Tally:
    """From every bucket or from none."""
    if not buckets:
        return NOTHING_DRAWN
    now, least = time.monotonic(), inf
    for quota, bucket in buckets:
        level = bucket.level(quota.amount, now)
        if level < wanted:
            refused = Standing(what, quota, False, level, wanted)
            return Tally(refused, (refused,))
        if level < least:
            tightest, least = quota, level
    for _, bucket in buckets:
        bucket.take(wanted)
    return Tally(None, (Standing(what, tightest, True, least - wanted),))
