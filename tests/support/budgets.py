"""Budgets for tests: terms of a tenant, a team and a key, and a ledger in memory that knows what was settled."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.ids import new_id
from gateway.tenants.limits import Limiter
from gateway.tenants.periods import Period, PeriodKind
from gateway.tenants.spending import Spending
from gateway.tenants.terms import KeySpending
from gateway.tenants.types import Budget, Key, Limits, OwnerKind, Principal, Team, Tenant

NOON = 1_796_040_000.0  # 2026-11-30 12:00:00 UTC, the last day of a month
MIDNIGHT = NOON + 12 * 3600


def principal(
    tenant: str = "t1", team: str | None = "m1", key: str = "k1", limits: Mapping[str, Limits] | None = None
) -> Principal:
    """`limits` by "tenant", "team" and "key"."""
    limits, none = limits or {}, Limits()
    return Principal(
        tenant=Tenant(id=tenant, name=tenant, limits=limits.get("tenant", none)),
        team=None if team is None else Team(id=team, tenant_id=tenant, name=team, limits=limits.get("team", none)),
        key=Key(id=key, tenant_id=tenant, name=key, prefix="sk-th-abcd", team_id=team, limits=limits.get("key", none)),
    )


def budget(kind: OwnerKind, owner: str, amount: int, period: PeriodKind = "month", **fields: Any) -> Budget:
    return Budget(
        id=new_id(),
        tenant_id="t1",
        owner_kind=kind,
        owner_id=owner,
        period=period,
        amount_nanousd=amount,
        **fields,
    )


def by_owner(*budgets: Budget) -> dict[str, tuple[Budget, ...]]:
    return {owner: tuple(b for b in budgets if b.owner_id == owner) for owner in {b.owner_id for b in budgets}}


class RememberedBooks:
    """Implements `gateway.tenants.spending.Books` over what a test says was settled."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, str, str, str | None, int]] = []  # at, tenant, key, team, nano-dollars
        self.num_asked = 0

    def settle(self, who: Principal, at: float, nanousd: int) -> None:
        self.rows.append((at, who.tenant.id, who.key.id, who.key.team_id, nanousd))

    async def spent_by_key(self, tenant_id: str, period: Period) -> Sequence[KeySpending]:
        self.num_asked += 1
        return [
            KeySpending(key, team, nanousd)
            for at, tenant, key, team, nanousd in self.rows
            if tenant == tenant_id and period.start <= at < period.end
        ]

    def spent(self, owner_id: str, period: Period) -> int:
        """By an owner of any kind."""
        within = [row for row in self.rows if period.start <= row[0] < period.end]
        return sum(nanousd for _, *owners, nanousd in within if owner_id in owners)


def limiter(url: str, books: RememberedBooks, *budgets: Budget, **options: Any) -> Limiter:
    made = Limiter(Limits(), url, spending=Spending(books), **options)
    made.set_budgets(by_owner(*budgets))
    return made
