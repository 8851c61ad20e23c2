"""What holds for one key: the limits and budgets of its tenant, its team and itself, gathered once and kept.

Knows no counts; `local_counts` and `shared_counts` keep those.
"""

from collections.abc import Iterable, Mapping

import msgspec

from gateway.tenants.periods import PERIODS, PeriodKind
from gateway.tenants.types import Budget, Limits, OwnerKind, Principal


class Owner(msgspec.Struct, frozen=True, gc=False):
    """Whose a limit or a budget is. Ids are unique among all kinds."""

    kind: OwnerKind
    id: str


class Quota(msgspec.Struct, frozen=True, gc=False):
    """So many requests a minute, tokens a minute or requests at once."""

    owner: Owner
    amount: int


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """All budgets of one owner for one kind of period: they share a count."""

    owner: Owner
    period: PeriodKind
    budgets: tuple[Budget, ...]

    @property
    def hard(self) -> Budget | None:
        """The one that refuses."""
        return next((budget for budget in self.budgets if budget.hard), None)


class KeySpending(msgspec.Struct, frozen=True):
    """What one key spent in a period, as the ledger has it."""

    key_id: str
    team_id: str | None
    nanousd: int

    def is_of(self, owner: Owner) -> bool:
        return owner.kind == "tenant" or owner.id == (self.key_id if owner.kind == "key" else self.team_id)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """False where nothing is limited."""

    tenant_id: str = ""
    key_id: str = ""
    requests: tuple[Quota, ...] = ()  # each tuple from the tenant's to the key's
    tokens: tuple[Quota, ...] = ()
    slots: tuple[Quota, ...] = ()
    allowances: tuple[Allowance, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requests or self.tokens or self.slots or self.allowances)


def terms_of(principal: Principal, defaults: Limits, budgets: Mapping[str, tuple[Budget, ...]]) -> Terms:
    """`defaults` are for a tenant that names no limit of its own; `budgets` by their owner's id."""
    tenant, team, key = principal.tenant, principal.team, principal.key
    owned = [(Owner("tenant", tenant.id), _or_default(tenant.limits, defaults))]
    if team is not None:
        owned.append((Owner("team", team.id), team.limits))
    owned.append((Owner("key", key.id), key.limits))
    return Terms(
        tenant_id=tenant.id,
        key_id=key.id,
        requests=_quotas((owner, limits.requests_per_minute) for owner, limits in owned),
        tokens=_quotas((owner, limits.tokens_per_minute) for owner, limits in owned),
        slots=_quotas((owner, limits.concurrent_requests) for owner, limits in owned),
        allowances=tuple(
            allowance for owner, _ in owned for allowance in allowances_of(owner, budgets.get(owner.id, ()))
        ),
    )


def allowances_of(owner: Owner, budgets: tuple[Budget, ...]) -> list[Allowance]:
    by_period = [(period, tuple(each for each in budgets if each.period == period)) for period in PERIODS]
    return [Allowance(owner, period, found) for period, found in by_period if found]


def _or_default(own: Limits, defaults: Limits) -> Limits:
    """A tenant's own 0 lifts the default."""
    names = Limits.__struct_fields__
    return Limits(**{n: getattr(defaults, n) if getattr(own, n) is None else getattr(own, n) for n in names})


def _quotas(amounts: Iterable[tuple[Owner, int | None]]) -> tuple[Quota, ...]:
    return tuple(Quota(owner, amount) for owner, amount in amounts if amount)
