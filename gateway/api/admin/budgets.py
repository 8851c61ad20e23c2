"""/admin/budgets: what tenants, teams and keys may spend in a UTC day or month."""

from typing import Annotated

import msgspec
from litestar import Controller, delete, get, put
from litestar.params import FromQuery, JSONBody
from msgspec import Meta

from gateway.api.admin.access import Books, By, Gateway
from gateway.api.admin.views import Body, Name
from gateway.ledger.prices import to_nanousd
from gateway.store.budgets import BudgetRow
from gateway.tenants.budgets import (
    DEFAULT_PERCENTS,
    MAX_MARKS,
    MAX_NANOUSD,
    MAX_PERCENT,
    list_budgets,
    remove_budget,
    set_budget,
)
from gateway.tenants.periods import PeriodKind
from gateway.tenants.types import OwnerKind
from gateway.url_view import without_secrets

Percents = Annotated[tuple[Annotated[int, Meta(ge=1, le=MAX_PERCENT)], ...], Meta(max_length=MAX_MARKS)]


class NewBudget(Body, kw_only=True):
    """Of the tenant, or of a team or a key of it. It takes the place of one of the same owner, period and hardness."""

    tenant: Name
    team: Name | None = None
    key: Annotated[str, Meta(min_length=1, max_length=64)] | None = None  # id, prefix or name
    period: PeriodKind
    amount_usd: Annotated[float, Meta(ge=0, le=MAX_NANOUSD / 10**9)]
    hard: bool = True  # false: nothing is refused, answers carry a warning
    warn_percents: Percents = DEFAULT_PERCENTS
    webhook_url: Annotated[str, Meta(max_length=2000)] = ""


class BudgetView(msgspec.Struct):
    id: str
    tenant: str
    owner_kind: OwnerKind
    owner: str
    period: PeriodKind
    hard: bool
    amount_nanousd: int
    spent_nanousd: int  # in the present period
    warn_percents: tuple[int, ...]
    webhook_url: str  # its host alone: the rest may be what opens it


class Budgets(Controller):
    path = "/budgets"
    tags = ("budgets",)

    @get(summary="Budgets, with what was spent so far")
    async def list_budgets(self, books: Books, tenant: FromQuery[str | None] = None) -> list[BudgetView]:
        return [_view(row) for row in await list_budgets(books, tenant)]

    @put(summary="Set a budget; what was spent in the period so far counts")
    async def set_budget(self, data: JSONBody[NewBudget], books: Books, gateway: Gateway, by: By) -> BudgetView:
        made = await set_budget(
            books,
            data.tenant,
            team=data.team,
            key=data.key,
            period=data.period,
            amount_nanousd=to_nanousd(data.amount_usd),
            hard=data.hard,
            warn_percents=data.warn_percents,
            webhook_url=data.webhook_url,
            allow_private_webhooks=gateway.snapshot.config.security.allow_private_webhooks,
            by=by,
        )
        rows = await list_budgets(books, data.tenant)
        return next(_view(row) for row in rows if row.budget.id == made.id)

    @delete(summary="Remove a budget")
    async def remove_budget(
        self,
        books: Books,
        by: By,
        tenant: FromQuery[str],
        period: FromQuery[PeriodKind],
        team: FromQuery[str | None] = None,
        key: FromQuery[str | None] = None,
        hard: FromQuery[bool] = True,
    ) -> None:
        await remove_budget(books, tenant, team=team, key=key, period=period, hard=hard, by=by)


def _view(row: BudgetRow) -> BudgetView:
    budget = row.budget
    return BudgetView(
        id=budget.id,
        tenant=row.tenant_name,
        owner_kind=budget.owner_kind,
        owner=row.owner_name,
        period=budget.period,
        hard=budget.hard,
        amount_nanousd=budget.amount_nanousd,
        spent_nanousd=row.spent_nanousd,
        warn_percents=budget.warn_percents,
        webhook_url=without_secrets(budget.webhook_url) if budget.webhook_url else "",
    )
