"""Rows of budget_alerts: a mark that a budget came to, claimed by the gateway that tells it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Row, Select, delete, insert, update

from gateway.ids import new_id
from gateway.store.budget_tables import budget_alerts, budgets
from gateway.store.budgets import read_budget, with_owners
from gateway.store.database import Database
from gateway.store.errors import DuplicateRow
from gateway.tenants.types import Budget

KEPT_FOR = timedelta(days=1)  # whoever was not reached by then is not told


class Pending(msgspec.Struct, frozen=True):
    """An alert that is ours to tell, with the names that a person knows."""

    id: str
    budget: Budget
    tenant_name: str
    owner_name: str
    period: str
    mark: int
    spent_nanousd: int
    reached_at: float


async def claim(
    database: Database, budget_id: str, period: str, mark: int, spent_nanousd: int, at: float
) -> Pending | None:
    """None where somebody has it already, or the budget is gone. Raises StoreError."""
    alert_id, moment = new_id(), datetime.fromtimestamp(at, UTC)
    row = {"id": alert_id, "budget_id": budget_id, "period": period, "mark": mark, "spent_nanousd": spent_nanousd}
    try:
        async with database.write() as connection:
            await connection.execute(
                insert(budget_alerts).values(**row, reached_at=moment, claimed_at=datetime.now(UTC))
            )
            found = (await connection.execute(_pending().where(budget_alerts.c.id == alert_id))).first()
            if found is None:
                await connection.execute(delete(budget_alerts).where(budget_alerts.c.id == alert_id))
    except DuplicateRow:
        return None
    return None if found is None else _read(found)


async def claim_left_over(database: Database, older_than_s: float) -> Sequence[Pending]:
    """What nobody has delivered for so long, and is not too old to be told."""
    now = datetime.now(UTC)
    before = now - timedelta(seconds=older_than_s)
    undelivered = (
        budget_alerts.c.delivered_at.is_(None),
        budget_alerts.c.claimed_at < before,
        budget_alerts.c.reached_at > now - KEPT_FOR,
    )
    ours = []
    async with database.write() as connection:
        for row in (await connection.execute(_pending().where(*undelivered))).all():
            mine = update(budget_alerts).where(budget_alerts.c.id == row.alert_id, *undelivered).values(claimed_at=now)
            if (await connection.execute(mine)).rowcount:
                ours.append(_read(row))
    return ours


async def note_delivered(database: Database, alert_id: str) -> None:
    async with database.write() as connection:
        await connection.execute(
            update(budget_alerts).where(budget_alerts.c.id == alert_id).values(delivered_at=datetime.now(UTC))
        )


def _pending() -> Select[Any]:
    columns = [budget_alerts.c[name] for name in ("mark", "spent_nanousd", "reached_at")]
    ids = (budget_alerts.c.id.label("alert_id"), budget_alerts.c.period.label("alert_period"))
    return (
        with_owners(budgets, *ids, *columns)
        .join(budget_alerts, budget_alerts.c.budget_id == budgets.c.id)
        .order_by(budget_alerts.c.id)
    )


def _read(row: Row[Any]) -> Pending:
    return Pending(
        id=row.alert_id,
        budget=read_budget(row),
        tenant_name=row.tenant_name,
        owner_name=row.owner_name or "",
        period=row.alert_period,
        mark=row.mark,
        spent_nanousd=row.spent_nanousd,
        reached_at=row.reached_at.timestamp(),
    )
