"""Any history of reservations, settlements, crashes and lost counts against a model that counts on its fingers.

What is admitted is exactly what the model admits: never more, so that no hard budget is ever overspent, and never less.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.ids import new_id
from gateway.tenants.limits import Limiter, Ticket
from gateway.tenants.periods import Period, period_at
from gateway.tenants.refusals import BudgetExceeded
from gateway.tenants.shared_counts import SharedCounts
from gateway.tenants.types import Budget, Principal
from tests.support.budgets import NOON, RememberedBooks, budget, limiter, principal

HOUR_S = 3600.0
T = TypeVar("T")
Held = tuple[Limiter, Ticket, Principal, float, int]  # where, whose, when it began, reserved nano-dollars


class Histories(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.books = RememberedBooks()
        self.now = NOON
        self.held: list[Held] = []
        self.gates: list[Limiter] = []

    @initialize(amounts=st.lists(st.integers(0, 60), min_size=4, max_size=4))
    def open(self, amounts: list[int]) -> None:
        tenant = new_id()  # a Redis serves many histories
        self.callers = [
            principal(tenant, f"{tenant}-m1", f"{tenant}-k1"),
            principal(tenant, f"{tenant}-m1", f"{tenant}-k2"),
            principal(tenant, None, f"{tenant}-k3"),
        ]
        self.budgets = [
            budget("tenant", tenant, amounts[0], "month"),
            budget("team", f"{tenant}-m1", amounts[1], "day"),
            budget("key", f"{tenant}-k1", amounts[2], "day"),
            budget("key", f"{tenant}-k3", amounts[3], "month"),
            budget("key", f"{tenant}-k1", 1, "day", hard=False),
        ]
        self.gates = [self.start() for _ in range(2 if self.url else 1)]

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        """One step, and what it set off in the background."""

        async def to_its_end() -> T:
            outcome = await step
            for gate in self.gates:
                shared = gate._counting._shared
                if shared is not None:
                    await shared._link._calls.wait()
            return outcome

        return self.runner.run(to_its_end())

    def start(self) -> Limiter:
        async def inside() -> Limiter:
            return limiter(self.url, self.books, *self.budgets)

        return self.run(inside())

    @rule(who=st.integers(0, 2), where=st.integers(0, 1), cost=st.integers(1, 25))
    def reserve(self, who: int, where: int, cost: int) -> None:
        gate, caller = self.gates[where % len(self.gates)], self.callers[who]
        ticket = self.run(self.reserved(gate, caller, cost))
        assert (ticket is not None) == self.fits(caller, self.now, cost)
        if ticket is not None:
            self.held.append((gate, ticket, caller, self.now, cost))

    async def reserved(self, gate: Limiter, caller: Principal, cost: int) -> Ticket | None:
        ticket = await gate.admit(caller, at=self.now)
        try:
            await ticket.reserve(10, cost)
        except BudgetExceeded:
            await ticket.settle()
            return None
        return ticket

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 100), share=st.floats(0, 1))
    def settle(self, which: int, share: float) -> None:
        """At a part of what was reserved; at nothing, it failed or its client left."""
        _, ticket, caller, began, cost = self.held.pop(which % len(self.held))
        spent = int(cost * share)
        self.books.settle(caller, began, spent)
        self.run(ticket.settle(10, spent))
        self.run(ticket.settle(10, spent))  # counts once

    @rule(hours=st.sampled_from([0.5, 11.9, 12.0, 24.0, 24.0 * 20]))
    def wait(self, hours: float) -> None:
        self.now += hours * HOUR_S

    @rule(which=st.integers(0, 1), shares=st.lists(st.floats(0, 1), min_size=8, max_size=8))
    def crash(self, which: int, shares: list[float]) -> None:
        """What was under way is booked by who finds its journal, and its reservations end with their leases."""
        gate = self.gates[which % len(self.gates)]
        lost = [each for each in self.held if each[0] is gate]
        self.held = [each for each in self.held if each[0] is not gate]
        for index, (_, _, caller, began, cost) in enumerate(lost):
            self.books.settle(caller, began, int(cost * shares[index % len(shares)]))
        self.run(self.bury(gate))
        self.gates[self.gates.index(gate)] = self.start()
        self.run(self.look_up({began for *_, began, _ in lost}))

    async def bury(self, gate: Limiter) -> None:
        shared = gate._counting._shared
        if shared is not None:
            leases = f"tollhouse:limits:{{{self.callers[0].tenant.id}}}:leases"
            for ticket in shared.leases.claims:
                await shared._link._redis.zadd(leases, {ticket: 0})
        await gate.aclose()

    async def look_up(self, moments: set[float]) -> None:
        """As every gateway does now and then."""
        gate = self.gates[0]
        for caller in self.callers:
            terms = gate._terms_of(caller)
            for at in moments | {self.now}:
                counts = gate._counting.here()
                await gate._counting.spending.seed(counts, terms.tenant_id, terms.allowances, at)

    @precondition(lambda self: self.url)
    @rule()
    def forget(self) -> None:
        """Redis is emptied, and each gateway puts back what its requests hold."""
        self.run(self.empty())

    async def empty(self) -> None:
        first = self.gates[0]._counting._shared
        assert isinstance(first, SharedCounts)
        keys = await first._link._redis.keys(f"tollhouse:limits:{{{self.callers[0].tenant.id}}}:*")
        if keys:
            await first._link._redis.delete(*keys)
        for gate in self.gates:
            await gate._counting._shared.leases.renew()  # type: ignore[union-attr]

    @invariant()
    def no_hard_budget_is_overspent(self) -> None:
        for each in self.hard_budgets() if self.gates else ():
            for at in {row[0] for row in self.books.rows}:
                period = period_at(each.period, at)
                assert self.books.spent(each.owner_id, period) <= each.amount_nanousd

    def teardown(self) -> None:
        """Everything held comes back: what is left can be taken to the last nano-dollar, and no more."""
        if self.gates:
            for _, ticket, *_ in self.held:
                self.run(ticket.settle())
            self.held = []
            for caller in self.callers:
                left = self.left(caller, self.now)
                assert self.run(self.reserved(self.gates[0], caller, left + 1)) is None
                if left:
                    ticket = self.run(self.reserved(self.gates[0], caller, left))
                    assert ticket is not None
                    self.run(ticket.settle())
            for gate in self.gates:
                self.run(gate.aclose())
        self.runner.close()

    def fits(self, caller: Principal, at: float, cost: int) -> bool:
        return cost <= self.left(caller, at)

    def left(self, caller: Principal, at: float) -> int:
        """Of the tightest of a caller's budgets."""
        owners = {caller.tenant.id, caller.key.id, caller.key.team_id}
        found = []
        for each in self.hard_budgets():
            if each.owner_id in owners:
                period = period_at(each.period, at)
                found.append(each.amount_nanousd - self.books.spent(each.owner_id, period) - self.holding(each, period))
        return min(found)

    def holding(self, each: Budget, period: Period) -> int:
        return sum(
            cost
            for _, _, caller, began, cost in self.held
            if each.owner_id in (caller.tenant.id, caller.key.id, caller.key.team_id)
            and period.start <= began < period.end
        )

    def hard_budgets(self) -> Iterator[Budget]:
        return (each for each in self.budgets if each.hard)


@pytest.mark.parametrize("where", ["here", "redis"])
def test_budgets_hold_through_any_history(where: str, request: pytest.FixtureRequest) -> None:
    url = str(request.getfixturevalue("redis_url")) if where == "redis" else ""
    histories: Any = type("Histories", (Histories,), {"url": url})
    limits = settings(
        max_examples=25 if url else 60,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(histories, settings=limits)
