"""What counting says: how limits and budgets stand after a step, which one refused it, and what a request holds."""

from typing import Literal, Protocol

import msgspec

from gateway.tenants.periods import Period
from gateway.tenants.terms import Allowance, Quota, Terms

WINDOW_S = 60.0
What = Literal["requests", "tokens", "slots"]


class Standing(msgspec.Struct, frozen=True, gc=False):
    """How a quota stands: what is left of it after a step that was `admitted` or not."""

    what: What
    quota: Quota
    admitted: bool
    remaining: float
    wanted: float = 0.0

    @property
    def reset_s(self) -> float:
        """Until the whole quota is back."""
        return (self.quota.amount - self.remaining) * WINDOW_S / self.quota.amount

    @property
    def retry_after_s(self) -> float:
        """Until what was refused would be admitted."""
        return max(0.0, (self.wanted - self.remaining) * WINDOW_S / self.quota.amount)


class Balance(msgspec.Struct, frozen=True, gc=False):
    """How an allowance stands, in nano-dollars: what was spent, what running requests hold, what was asked for."""

    allowance: Allowance
    period: Period
    spent: int
    held: int = 0
    wanted: int = 0

    @property
    def admitted(self) -> bool:
        hard = self.allowance.hard
        return hard is None or self.spent + self.held + self.wanted <= hard.amount_nanousd


class Tally(msgspec.Struct, frozen=True, gc=False):
    """One step's outcome. A step takes all that it wants or nothing."""

    refused: Standing | Balance | None
    standings: tuple[Standing, ...] = ()  # of each kind the quota that is the nearest to its end
    balances: tuple[Balance, ...] = ()


def tightest(standings: tuple[Standing, ...]) -> tuple[Standing, ...]:
    """The one that is the nearest to its end, of quotas of one kind."""
    return standings if len(standings) < 2 else (min(standings, key=lambda each: each.remaining),)


class Claim(msgspec.Struct, gc=False):
    """What one request has taken so far. Mutable: what gives it back reads here what there is to give."""

    id: str
    at: float  # when the request began, in seconds since the epoch: its period
    terms: Terms
    slots: bool = False
    tokens: int = 0
    cost_nanousd: int = 0


class Unseeded(Exception):
    """Nobody has counted these allowances' spending in their present periods: the ledger has to be asked first."""

    def __init__(self, allowances: tuple[Allowance, ...]) -> None:
        super().__init__(f"{len(allowances)} allowances are not seeded")
        self.allowances = allowances


class Counts(Protocol):
    """Where limits and budgets are counted: in this process or in Redis."""

    async def admit(self, claim: Claim) -> Tally:
        """Takes a request of each quota and a slot of each, all or none."""

    async def reserve(self, claim: Claim, tokens: int, cost_nanousd: int) -> Tally:
        """Takes more of both from every quota and allowance, all or nothing. Raises Unseeded."""

    async def settle(self, claim: Claim, tokens: int, cost_nanousd: int) -> tuple[Balance, ...]:
        """Gives back all that the claim holds, and counts what was really used."""

    async def raise_to(self, tenant_id: str, balances: tuple[Balance, ...]) -> tuple[Balance, ...]:
        """Spending is at least this much: what the ledger knows. Returns what it is now; twice changes nothing."""
