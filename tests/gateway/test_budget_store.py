"""Budgets in SQL: set, listed with what was spent, removed; each act in the audit table; sums to the nano-dollar."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.ids import new_id
from gateway.ledger.records import RequestRecord
from gateway.store.budgets import select_spending
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.tenants.audit import list_acts
from gateway.tenants.budget_book import BudgetBook
from gateway.tenants.budgets import MAX_NANOUSD, list_budgets, remove_budget, set_budget
from gateway.tenants.errors import InvalidValue, UnknownName
from gateway.tenants.periods import period_at
from gateway.tenants.registry import create_key, create_team, create_tenant
from tests.support.budgets import MIDNIGHT

pytestmark = pytest.mark.anyio
USD = 10**9


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url)
    await made.open()
    await create_tenant(made, "acme")
    await create_team(made, "acme", "web")
    await create_key(made, "acme", "ci", team="web")
    await create_key(made, "acme", "dev")
    yield made
    await made.aclose()


async def book(database: Database, key: Any, cost: int, at: float) -> None:
    record = RequestRecord(
        id=new_id(), tenant_id=key.tenant_id, key_id=key.id, endpoint="chat.completions", requested_model="m",
        started_at=at, cost_nanousd=cost,
    )  # fmt: skip
    await insert_entries(database, [record])


async def test_set_list_remove_and_what_the_audit_table_says(database: Database) -> None:
    await set_budget(database, "acme", period="month", amount_nanousd=100 * USD)
    await set_budget(database, "acme", period="month", amount_nanousd=80 * USD, hard=False, warn_percents=(50, 100, 50))
    await set_budget(database, "acme", team="web", period="day", amount_nanousd=USD)
    await set_budget(database, "acme", key="dev", period="day", amount_nanousd=USD // 3)
    await set_budget(database, "acme", period="month", amount_nanousd=200 * USD)
    rows = await list_budgets(database, "acme")
    shown = [(row.budget.owner_kind, row.owner_name, row.budget.amount_nanousd, row.budget.hard) for row in rows]
    assert sorted(shown) == [
        ("key", "dev", USD // 3, True),
        ("team", "web", USD, True),
        ("tenant", "acme", 80 * USD, False),
        ("tenant", "acme", 200 * USD, True),
    ]
    assert next(row.budget for row in rows if not row.budget.hard).warn_percents == (50, 100)
    removed = await remove_budget(database, "acme", key="dev", period="day")
    assert removed.amount_nanousd == USD // 3
    with pytest.raises(UnknownName, match="has no hard budget for the day"):
        await remove_budget(database, "acme", key="dev", period="day")
    assert len(await list_budgets(database)) == 3
    acts = await list_acts(database, action="budget")
    assert [act.action for act in acts] == ["budget.remove", *["budget.set"] * 5]
    assert acts[1].target == "tenant acme, month, hard"
    assert acts[1].before is not None  # what it took the place of


@pytest.mark.parametrize(
    "wrong",
    [
        {"amount_nanousd": -1},
        {"amount_nanousd": MAX_NANOUSD + 1},
        {"period": "week"},
        {"warn_percents": (0,)},
        {"warn_percents": tuple(range(1, 12))},
        {"webhook_url": "http://127.0.0.1/"},
        {"webhook_url": "http://user:pw@example.com/"},
        {"team": "web", "key": "ci"},
    ],
)
async def test_what_makes_no_sense_is_refused_and_changes_nothing(database: Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        await set_budget(database, "acme", **{"period": "day", "amount_nanousd": USD, **wrong})
    assert await list_budgets(database) == []
    assert await list_acts(database, action="budget") == []


async def test_spending_is_summed_by_key_team_and_tenant_in_utc(database: Database) -> None:
    ci = (await create_key(database, "acme", "ci2", team="web")).key
    dev = (await create_key(database, "acme", "dev2")).key
    await book(database, ci, 5, MIDNIGHT - 1)
    await book(database, ci, 7 * 10**15, MIDNIGHT - 86_401)
    await book(database, dev, 11, MIDNIGHT - 0.001)
    await book(database, dev, 13, MIDNIGHT)
    await create_tenant(database, "other")
    await book(database, (await create_key(database, "other", "x")).key, 17, MIDNIGHT - 1)

    async def spent(kind: Any, at: float) -> dict[tuple[str, bool], int]:
        rows = await select_spending(database, ci.tenant_id, period_at(kind, at))
        return {(row.key_id, row.team_id is not None): row.nanousd for row in rows}

    assert await spent("day", MIDNIGHT - 1) == {(ci.id, True): 5, (dev.id, False): 11}
    assert await spent("month", MIDNIGHT - 1) == {(ci.id, True): 7 * 10**15 + 5, (dev.id, False): 11}
    assert await spent("day", MIDNIGHT) == {(dev.id, False): 13}


async def test_the_list_says_what_was_spent_in_the_present_period(database: Database) -> None:
    ci = (await create_key(database, "acme", "ci3", team="web")).key
    now = datetime.now(UTC).timestamp()
    await book(database, ci, 5 * USD, now)
    await book(database, ci, 9 * USD, now - 40 * 86_400)
    for owner in ({}, {"team": "web"}, {"key": "ci3"}, {"key": "dev"}):
        await set_budget(database, "acme", **owner, period="month", amount_nanousd=100 * USD)  # type: ignore[arg-type]
    spent = {(row.budget.owner_kind, row.owner_name): row.spent_nanousd for row in await list_budgets(database)}
    assert spent == {("tenant", "acme"): 5 * USD, ("team", "web"): 5 * USD, ("key", "ci3"): 5 * USD, ("key", "dev"): 0}


async def test_a_running_gateway_hears_of_every_change(database: Database) -> None:
    heard: list[dict[str, Any]] = []
    watching = BudgetBook(database, lambda budgets: heard.append(dict(budgets)))
    await watching.start()
    first = await set_budget(database, "acme", period="day", amount_nanousd=USD)
    await watching.poll()
    await remove_budget(database, "acme", period="day")
    await watching.poll()
    await watching.poll()
    await watching.aclose()
    assert heard == [{}, {first.owner_id: (first,)}, {}]
