"""Notices that a budget has come to one of its marks, or has refused somebody, and passes it on: each once in a period.

Looks on from a request's way and takes no time there. That it is told once, whatever restarts and however many gateways
there are, is the outbox's to see to.
"""

import time
from collections.abc import Callable

import msgspec

from gateway.tenants.periods import Period
from gateway.tenants.tally import Balance
from gateway.tenants.types import Budget

REFUSED = 0  # the mark of a budget that refused a request
MAX_TOLD = 10_000


class Alert(msgspec.Struct, frozen=True):
    budget: Budget
    period: Period
    mark: int  # percent of the budget's amount, or REFUSED
    spent_nanousd: int
    at: float


class Alerts:
    """Implements `gateway.tenants.counting.Watch`. `put` takes each alert and returns at once."""

    def __init__(self, put: Callable[[Alert], None]) -> None:
        self._put = put
        self._told: dict[tuple[Budget, str, int], None] = {}

    def spent(self, balances: tuple[Balance, ...]) -> None:
        for balance in balances:
            for budget in balance.allowance.budgets:
                for mark in budget.warn_percents:
                    if 100 * balance.spent >= mark * budget.amount_nanousd:
                        self._tell(budget, balance, mark)

    def refused(self, balance: Balance) -> None:
        """Only where nothing is left for the request: what others merely hold comes back."""
        hard = balance.allowance.hard
        if hard is not None and balance.spent + balance.wanted > hard.amount_nanousd:
            self._tell(hard, balance, REFUSED)

    def _tell(self, budget: Budget, balance: Balance, mark: int) -> None:
        key = (budget, balance.period.label, mark)
        if key in self._told:
            return
        if len(self._told) >= MAX_TOLD:
            self._told.clear()  # the outbox knows those that were told
        self._told[key] = None
        self._put(Alert(budget, balance.period, mark, balance.spent, time.time()))
