"""Rows of budgets and of the warnings they gave, and the ledger's sums that they are held against."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, Select, case, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.budget_tables import budget_alerts, budgets
from gateway.store.database import Database
from gateway.store.ledger_tables import requests
from gateway.store.tables import keys, teams, tenants
from gateway.store.versions import bump
from gateway.tenants.periods import Period, period_at
from gateway.tenants.terms import KeySpending, Owner
from gateway.tenants.types import Budget, OwnerKind


class BudgetRow(msgspec.Struct, frozen=True):
    """A budget as the lists show it."""

    budget: Budget
    tenant_name: str
    owner_name: str
    spent_nanousd: int  # in the present period, as far as it is in SQL


async def put_budget(connection: AsyncConnection, budget: Budget) -> Budget | None:
    """In place of the owner's budget of this period and kind, which is returned; its warnings begin anew."""
    known = await find_budget(connection, budget.owner_id, budget.period, budget.hard)
    if known is not None:
        await _remove(connection, known.id)
    await connection.execute(insert(budgets).values(**_values(budget), created_at=datetime.now(UTC)))
    await bump(connection, "budgets")
    return known


async def delete_budget(connection: AsyncConnection, budget_id: str) -> None:
    await _remove(connection, budget_id)
    await bump(connection, "budgets")


async def delete_budgets(connection: AsyncConnection, tenant_id: str) -> None:
    """All of a tenant, its teams and its keys."""
    for budget_id in (await connection.scalars(select(budgets.c.id).where(budgets.c.tenant_id == tenant_id))).all():
        await _remove(connection, budget_id)
    await bump(connection, "budgets")


async def find_budget(connection: AsyncConnection, owner_id: str, period: str, hard: bool) -> Budget | None:
    query = select(budgets).where(budgets.c.owner_id == owner_id, budgets.c.period == period, budgets.c.hard == hard)
    row = (await connection.execute(query)).first()
    return None if row is None else read_budget(row)


async def select_budgets(database: Database) -> list[Budget]:
    async with database.read() as connection:
        return [read_budget(row) for row in await connection.execute(select(budgets))]


async def select_budget_rows(database: Database, tenant_id: str | None = None) -> list[BudgetRow]:
    """As the lists show them, with the sums of the ledger."""
    owner_name = owner_name_column()
    query = with_owners(budgets).order_by(tenants.c.name, budgets.c.owner_kind.desc(), owner_name, budgets.c.period)
    if tenant_id is not None:
        query = query.where(budgets.c.tenant_id == tenant_id)
    spent: dict[tuple[str, str], Sequence[KeySpending]] = {}
    found = []
    async with database.read() as connection:
        for row in (await connection.execute(query)).all():
            budget = read_budget(row)
            period = period_at(budget.period, datetime.now(UTC).timestamp())
            keys_spent = spent.get((budget.tenant_id, period.label))
            if keys_spent is None:
                keys_spent = await _spending(connection, budget.tenant_id, period)
                spent[budget.tenant_id, period.label] = keys_spent
            owner = Owner(budget.owner_kind, budget.owner_id)
            total = sum(each.nanousd for each in keys_spent if each.is_of(owner))
            found.append(BudgetRow(budget, row.tenant_name, row.owner_name or "", total))
    return found


async def select_spending(database: Database, tenant_id: str, period: Period) -> Sequence[KeySpending]:
    """What each key of a tenant spent with the requests that began in a period."""
    async with database.read() as connection:
        return await _spending(connection, tenant_id, period)


def owner_name_column() -> ColumnElement[str]:
    kind = budgets.c.owner_kind
    return case((kind == "tenant", tenants.c.name), (kind == "team", teams.c.name), else_=keys.c.name)


def with_owners(*columns: Any) -> Select[Any]:
    """Budgets with their `tenant_name` and `owner_name`."""
    owned = (
        budgets.join(tenants, tenants.c.id == budgets.c.tenant_id)
        .outerjoin(teams, teams.c.id == budgets.c.owner_id)
        .outerjoin(keys, keys.c.id == budgets.c.owner_id)
    )
    names = (tenants.c.name.label("tenant_name"), owner_name_column().label("owner_name"))
    return select(*columns, *names).select_from(owned)


async def _spending(connection: AsyncConnection, tenant_id: str, period: Period) -> Sequence[KeySpending]:
    total = func.coalesce(func.sum(requests.c.cost_nanousd), 0)
    query = (
        select(requests.c.key_id, keys.c.team_id, total.label("nanousd"))
        .select_from(requests.outerjoin(keys, keys.c.id == requests.c.key_id))
        .where(
            requests.c.tenant_id == tenant_id,
            requests.c.started_at >= datetime.fromtimestamp(period.start, UTC),
            requests.c.started_at < datetime.fromtimestamp(period.end, UTC),
        )
        .group_by(requests.c.key_id, keys.c.team_id)
    )
    return [KeySpending(row.key_id, row.team_id, int(row.nanousd)) for row in await connection.execute(query)]


async def _remove(connection: AsyncConnection, budget_id: str) -> None:
    await connection.execute(delete(budget_alerts).where(budget_alerts.c.budget_id == budget_id))
    await connection.execute(delete(budgets).where(budgets.c.id == budget_id))


def _values(budget: Budget) -> dict[str, Any]:
    percents = ",".join(map(str, budget.warn_percents))
    return msgspec.structs.asdict(budget) | {"warn_percents": percents}


def read_budget(row: Row[Any]) -> Budget:
    owner_kind: OwnerKind = row.owner_kind
    return Budget(
        id=row.id,
        tenant_id=row.tenant_id,
        owner_kind=owner_kind,
        owner_id=row.owner_id,
        period=row.period,
        amount_nanousd=row.amount_nanousd,
        hard=row.hard,
        warn_percents=tuple(int(each) for each in row.warn_percents.split(",") if each),
        webhook_url=row.webhook_url,
    )
