"""The same limits and budgets counted in Redis, for gateways that share tenants: one atomic script for each step.

What a request holds is a lease that its gateway renews. A count that Redis has lost is noticed by its epoch, a random
word that each key of spending is born with; `on_new_epoch` is told whose spending has to be looked up again.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from gateway.ids import new_id
from gateway.tenants import redis_scripts as scripts
from gateway.tenants.leases import Leases
from gateway.tenants.local_counts import OLD_S
from gateway.tenants.periods import period_at
from gateway.tenants.redis_keys import (
    bucket_key,
    dollars_field,
    lease_keys,
    slot_field,
    spending_keys,
    spent_key,
)
from gateway.tenants.redis_link import RedisAway, RedisLink
from gateway.tenants.tally import Balance, Claim, Standing, Tally, Unseeded, What, tightest
from gateway.tenants.terms import Quota, Terms

__all__ = ["RedisAway", "SharedCounts"]
_MAX_EPOCHS = 10_000
_SPENT = {"day": 4, "month": 5}  # where the scripts expect the key of a period's spending


class SharedCounts:
    """Implements `gateway.tenants.tally.Counts`. `aclose` after use.

    Every step raises RedisAway; what had been taken then comes free by itself.
    """

    def __init__(self, link: RedisLink, lease_s: float = 60.0) -> None:
        self._link = link
        self.leases = Leases(link, lease_s)
        self._steps: dict[str, asyncio.Task[Any]] = {}  # reservations under way, by request
        self._epochs: dict[str, str] = {}  # by key of spending
        self.on_new_epoch: Callable[[Terms, float], None] = lambda terms, at: None

    @property
    def available(self) -> bool:
        return self._link.available

    async def admit(self, claim: Claim) -> Tally:
        step = self._link.spawn(self._admit(claim))
        try:
            return cast(Tally, await asyncio.shield(step))
        except asyncio.CancelledError:  # it is counted all the same: so undo it afterwards
            step.add_done_callback(lambda _: self._link.spawn(self._undo(claim)))
            raise

    async def reserve(self, claim: Claim, tokens: int, cost_nanousd: int) -> Tally:
        """A client that leaves meanwhile does not stop it; `settle` waits for its end."""
        step = self._steps[claim.id] = self._link.spawn(self._reserve(claim, tokens, cost_nanousd))
        step.add_done_callback(lambda _: self._steps.pop(claim.id, None))
        return cast(Tally, await asyncio.shield(step))

    async def settle(self, claim: Claim, tokens: int, cost_nanousd: int) -> tuple[Balance, ...]:
        """To its end, whoever is cancelled meanwhile: its lease would be renewed for ever."""
        return cast(
            tuple[Balance, ...], await asyncio.shield(self._link.spawn(self._settle(claim, tokens, cost_nanousd)))
        )

    async def _settle(self, claim: Claim, tokens: int, cost_nanousd: int) -> tuple[Balance, ...]:
        if (step := self._steps.get(claim.id)) is not None:
            await asyncio.wait([step])  # its client left; what it takes has to be there before it is given back
        self.leases.forget(claim)
        terms, give_back = claim.terms, claim.tokens - tokens if claim.terms.tokens else 0
        allowances = terms.allowances if cost_nanousd or claim.cost_nanousd else ()
        if not (claim.slots or give_back or allowances):
            return ()
        periods = [period_at(each.period, claim.at) for each in allowances]
        arguments: list[Any] = [claim.id, give_back, cost_nanousd, len(allowances)]
        for each, period in zip(allowances, periods, strict=True):
            arguments += [_SPENT[each.period], each.owner.id, dollars_field(each, period)]
        arguments += [quota.amount for quota in terms.tokens]
        keys = [
            *lease_keys(terms),
            *spending_keys(terms, claim.at),
            *(bucket_key(terms, "tokens", q) for q in terms.tokens),
        ]
        *found, day, month = await self._link.run(scripts.SETTLE, keys, arguments)
        if allowances:
            self._note_epochs(claim, (day, month))
        if "" in found[::2]:
            self.on_new_epoch(terms, claim.at)
        return tuple(
            Balance(each, period, int(found[2 * index] or cost_nanousd), int(found[2 * index + 1]))
            for index, (each, period) in enumerate(zip(allowances, periods, strict=True))
        )

    async def raise_to(self, tenant_id: str, balances: tuple[Balance, ...]) -> tuple[Balance, ...]:
        periods = list({balance.period.label: balance.period for balance in balances}.values())
        arguments: list[Any] = [new_id()]
        for balance in balances:
            arguments += [1 + periods.index(balance.period), balance.allowance.owner.id, balance.spent]
        arguments += [int((max(period.end, time.time()) + OLD_S) * 1000) for period in periods]
        keys = [spent_key(tenant_id, period) for period in periods]
        found = await self._link.run_on(scripts.RAISE, keys, arguments)
        return tuple(
            Balance(balance.allowance, balance.period, int(spent))
            for balance, spent in zip(balances, found, strict=True)
        )

    async def aclose(self) -> None:
        await self.leases.aclose()
        await self._link.aclose()

    async def _admit(self, claim: Claim) -> Tally:
        terms, num_slots = claim.terms, len(claim.terms.slots)
        keys = [*lease_keys(terms), *(bucket_key(terms, "requests", quota) for quota in terms.requests)]
        fields = " ".join(f"{slot_field(quota)}=1" for quota in terms.slots)
        arguments: list[Any] = [claim.id, self.leases.length_ms, fields, num_slots]
        arguments += [part for quota in terms.slots for part in (slot_field(quota), quota.amount)]
        arguments += [quota.amount for quota in terms.requests]
        refused, *found = await self._link.run(scripts.ADMIT, keys, arguments)
        if 0 < refused <= num_slots:
            quota = terms.slots[refused - 1]
            return Tally(Standing("slots", quota, False, quota.amount - float(found[refused - 1]), 1.0))
        requests = _standings("requests", terms.requests, found[num_slots:], 1.0, refused == 0)
        if refused:
            return Tally(requests[refused - num_slots - 1], tightest(requests))
        if terms.slots:
            claim.slots = True
            self.leases.keep(claim)
        return Tally(None, tightest(requests))

    async def _reserve(self, claim: Claim, tokens: int, cost_nanousd: int) -> Tally:
        terms = claim.terms
        buckets = terms.tokens if tokens else ()
        allowances = [(each, period_at(each.period, claim.at)) for each in (terms.allowances if cost_nanousd else ())]
        fields = " ".join(f"{dollars_field(each, period)}={cost_nanousd}" for each, period in allowances)
        arguments: list[Any] = [claim.id, self.leases.length_ms, fields, tokens, cost_nanousd, len(allowances)]
        for each, period in allowances:
            hard = each.hard.amount_nanousd if each.hard is not None else -1
            arguments += [_SPENT[each.period], each.owner.id, dollars_field(each, period), hard]
        arguments += [quota.amount for quota in buckets]
        keys = [
            *lease_keys(terms),
            *spending_keys(terms, claim.at),
            *(bucket_key(terms, "tokens", each) for each in buckets),
        ]
        refused, *found, day, month = await self._link.run(scripts.RESERVE, keys, arguments)
        self._note_epochs(claim, (day, month))
        counted = found[len(buckets) :]
        if refused < 0:
            raise Unseeded(tuple(each for index, (each, _) in enumerate(allowances) if counted[2 * index] == ""))
        standings = _standings("tokens", buckets, found, tokens, refused == 0)
        balances = tuple(
            Balance(each, period, int(counted[2 * index]), int(counted[2 * index + 1]), cost_nanousd)
            for index, (each, period) in enumerate(allowances)
        )
        if refused:
            return Tally((*standings, *balances)[refused - 1], tightest(standings), balances)
        claim.tokens += tokens
        claim.cost_nanousd += cost_nanousd
        if allowances:
            self.leases.keep(claim)
        return Tally(None, tightest(standings), balances)

    async def _undo(self, claim: Claim) -> None:
        with suppress(RedisAway):  # the lease ends by itself then
            await self.settle(claim, 0, 0)

    def _note_epochs(self, claim: Claim, found: tuple[str, ...]) -> None:
        for key, epoch in zip(spending_keys(claim.terms, claim.at), found, strict=True):
            if not epoch:
                continue
            known = self._epochs.pop(key, epoch)  # and back to the end: the oldest periods leave first
            self._epochs[key] = epoch
            if len(self._epochs) > _MAX_EPOCHS:
                del self._epochs[next(iter(self._epochs))]
            if known != epoch:
                self.on_new_epoch(claim.terms, claim.at)
                self._link.spawn(self.leases.renew())


def _standings(
    what: What, quotas: tuple[Quota, ...], left: list[str], wanted: float, taken: bool
) -> tuple[Standing, ...]:
    pairs = [(quota, float(each)) for quota, each in zip(quotas, left, strict=False)]
    return tuple(Standing(what, quota, taken or each >= wanted, each, wanted) for quota, each in pairs)
