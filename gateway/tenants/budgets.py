"""What an administrator does with budgets; command line and admin API call it. Each act is noted in the audit table.

An owner is named as people name it: a tenant, and within it a team or a key (by id, prefix or name), or neither.
"""

import msgspec

from gateway.ids import new_id
from gateway.store import budgets as store
from gateway.store.budgets import BudgetRow
from gateway.store.database import Database, Transaction
from gateway.tenants.audit import PROGRAM, Actor, Target, acting
from gateway.tenants.errors import InvalidValue, UnknownName
from gateway.tenants.periods import PERIODS, PeriodKind
from gateway.tenants.registry.find import find_key, find_team, find_tenant
from gateway.tenants.types import Budget, OwnerKind
from gateway.upstream.address_guard import ForbiddenAddress, Guard, check_url

MAX_NANOUSD = 9_000_000 * 10**9  # below 2^53, up to which the numbers of Redis's scripts are exact
MAX_MARKS = 10
MAX_PERCENT = 1000
DEFAULT_PERCENTS = (80, 100)


class Owned(msgspec.Struct, frozen=True):
    """Whose a budget is, with the name that a person knows."""

    tenant_id: str
    kind: OwnerKind
    id: str
    name: str


async def set_budget(
    database: Database,
    tenant_name: str,
    *,
    team: str | None = None,
    key: str | None = None,
    period: PeriodKind,
    amount_nanousd: int,
    hard: bool = True,
    warn_percents: tuple[int, ...] = DEFAULT_PERCENTS,
    webhook_url: str = "",
    allow_private_webhooks: bool = False,
    by: Actor = PROGRAM,
) -> Budget:
    """In place of the owner's budget of this period and hardness, if there is one; what was spent in the period counts.

    Raises UnknownName, InvalidValue.
    """
    guard: Guard = "not-metadata" if allow_private_webhooks else "public"
    _check(period, amount_nanousd, warn_percents, webhook_url, guard)
    async with acting(database, by) as act:
        owner = await _owner(act.transaction, tenant_name, team, key)
        budget = Budget(
            id=new_id(),
            tenant_id=owner.tenant_id,
            owner_kind=owner.kind,
            owner_id=owner.id,
            period=period,
            amount_nanousd=amount_nanousd,
            hard=hard,
            warn_percents=tuple(sorted(set(warn_percents))),
            webhook_url=webhook_url,
        )
        before = await store.put_budget(act.transaction, budget)
        act.note("budget.set", target=_target(budget, owner.name), before=before, after=budget)
    return budget


async def list_budgets(database: Database, tenant_name: str | None = None) -> list[BudgetRow]:
    """Sorted by tenant, owner and period, each with what was spent so far. Raises UnknownName."""
    async with database.read() as connection:
        tenant = await find_tenant(connection, tenant_name) if tenant_name is not None else None
    return await store.select_budget_rows(database, tenant.id if tenant is not None else None)


async def remove_budget(
    database: Database,
    tenant_name: str,
    *,
    team: str | None = None,
    key: str | None = None,
    period: PeriodKind,
    hard: bool = True,
    by: Actor = PROGRAM,
) -> Budget:
    """Raises UnknownName."""
    async with acting(database, by) as act:
        owner = await _owner(act.transaction, tenant_name, team, key)
        budget = await store.find_budget(act.transaction, owner.id, period, hard)
        if budget is None:
            what = f"{'hard' if hard else 'soft'} budget for the {period}"
            raise UnknownName(f"the {owner.kind} {owner.name!r} has no {what} (see `tollhouse budgets list`)")
        await store.delete_budget(act.transaction, budget.id)
        act.note("budget.remove", target=_target(budget, owner.name), before=budget)
    return budget


async def _owner(transaction: Transaction, tenant_name: str, team: str | None, key: str | None) -> Owned:
    if team is not None and key is not None:
        raise InvalidValue("a budget is a team's or a key's, not both's")
    tenant = await find_tenant(transaction, tenant_name)
    if team is not None:
        found = await find_team(transaction, tenant, team)
        return Owned(tenant.id, "team", found.id, found.name)
    if key is not None:
        row = await find_key(transaction, key, tenant_name)
        return Owned(tenant.id, "key", row.key.id, row.key.name)
    return Owned(tenant.id, "tenant", tenant.id, tenant.name)


def _target(budget: Budget, owner_name: str) -> Target:
    kind = "hard" if budget.hard else "soft"
    return Target(budget.id, f"{budget.owner_kind} {owner_name}, {budget.period}, {kind}", budget.tenant_id)


def _check(period: str, amount_nanousd: int, warn_percents: tuple[int, ...], webhook_url: str, guard: Guard) -> None:
    if period not in PERIODS:
        raise InvalidValue(f"a budget's period is one of {', '.join(PERIODS)}, not {period!r}")
    if not 0 <= amount_nanousd <= MAX_NANOUSD:
        raise InvalidValue(f"a budget is from 0 to {MAX_NANOUSD // 10**9:,} dollars")
    if len(warn_percents) > MAX_MARKS or not all(1 <= each <= MAX_PERCENT for each in warn_percents):
        raise InvalidValue(f"a budget warns at up to {MAX_MARKS} marks from 1 to {MAX_PERCENT} percent")
    if webhook_url:
        try:
            check_url(webhook_url, guard)
        except ForbiddenAddress as error:
            raise InvalidValue(f"webhook: {error}") from error
