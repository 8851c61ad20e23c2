"""Rows of budgets and of the warnings they gave, and the ledger's sums that they are held against."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Row, and_, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.budget_tables import budget_alerts, budgets
from gateway.store.database import Database
from gateway.store.tables import keys, requests
from gateway.store.versions import bump
from gateway.tenants.periods import Period
from gateway.tenants.spending import KeySpending
from gateway.tenants.types import Budget, OwnerKind


async def put_budget(connection: AsyncConnection, budget: Budget) -> Budget | None:
    """In place of the owner's budget of this period and kind, which is returned; its warnings begin anew."""
    known = (await connection.execute(select(budgets).where(_same(budget)))).first()
    if known is not None:
        await _remove(connection, known.id)
    await connection.execute(insert(budgets).values(**_values(budget), created_at=datetime.now(UTC)))
    await bump(connection, "budgets")
    return None if known is None else _budget(known)


async def delete_budget(connection: AsyncConnection, budget_id: str) -> None:
    await _remove(connection, budget_id)
    await bump(connection, "budgets")


async def select_budgets(
    database: Database, *, tenant_id: str | None = None, owner_id: str | None = None
) -> list[Budget]:
    query = select(budgets).order_by(budgets.c.tenant_id, budgets.c.owner_kind, budgets.c.owner_id, budgets.c.period)
    if tenant_id is not None:
        query = query.where(budgets.c.tenant_id == tenant_id)
    if owner_id is not None:
        query = query.where(budgets.c.owner_id == owner_id)
    async with database.read() as connection:
        return [_budget(row) for row in await connection.execute(query)]


async def select_spending(database: Database, tenant_id: str, period: Period) -> Sequence[KeySpending]:
    """What each key of a tenant spent with the requests that began in a period."""
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
    async with database.read() as connection:
        return [KeySpending(row.key_id, row.team_id, int(row.nanousd)) for row in await connection.execute(query)]


def _same(budget: Budget) -> Any:
    return and_(
        budgets.c.owner_kind == budget.owner_kind,
        budgets.c.owner_id == budget.owner_id,
        budgets.c.period == budget.period,
        budgets.c.hard == budget.hard,
    )


async def _remove(connection: AsyncConnection, budget_id: str) -> None:
    await connection.execute(delete(budget_alerts).where(budget_alerts.c.budget_id == budget_id))
    await connection.execute(delete(budgets).where(budgets.c.id == budget_id))


def _values(budget: Budget) -> dict[str, Any]:
    percents = ",".join(map(str, budget.warn_percents))
    return msgspec.structs.asdict(budget) | {"warn_percents": percents}


def _budget(row: Row[Any]) -> Budget:
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
