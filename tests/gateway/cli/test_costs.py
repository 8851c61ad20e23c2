"""`costs`: what was spent and saved, for people and for programs."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from gateway.cli.output import decimals_for, money
from gateway.ids import new_id
from gateway.ledger.records import RequestRecord
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.store.url import sqlite_url
from gateway.tenants.registry import get_tenant
from tests.gateway.cli.conftest import Tollhouse


def fill_books(tollhouse: Tollhouse) -> None:
    async def fill() -> None:
        database = Database(sqlite_url(tollhouse.home))
        await database.open()
        tenant = await get_tenant(database, "acme")
        day = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
        fields = {"tenant_id": tenant.id, "key_id": "k", "endpoint": "chat.completions", "requested_model": "auto"}
        miss = {"cost_nanousd": 1_160, "saved_by_routing_nanousd": 448_840, "cache": "miss"}
        hit = {"saved_by_cache_nanousd": 1_160, "saved_by_routing_nanousd": 448_840, "cache": "hit-exact"}
        rows = [{"tier": "small", **miss}, {"tier": "small", **hit}, {"tier": "large", "cost_nanousd": 20_000_000}]
        records = [RequestRecord(id=new_id(), started_at=day, model="m", **fields, **row) for row in rows]
        await insert_entries(database, records)
        await database.aclose()

    asyncio.run(fill())


def test_costs_shows_each_line_and_a_total(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    assert "nothing in the books yet" in tollhouse.does("costs")
    fill_books(tollhouse)
    lines = {line.split()[1]: line for line in tollhouse.does("costs", "--by", "tier").splitlines() if "acme" in line}
    assert "50%" in lines["small"]
    assert "$0.0000012" in lines["small"]
    assert "$0.0200000" in lines["large"]
    total = next(line for line in tollhouse.does("costs", "--by", "tier").splitlines() if line.startswith("total"))
    assert "$0.0200012" in total
    assert "$0.0008977" in total
    assert "nothing in the books since" in tollhouse.does("costs", "--since", "2026-11-30")


def test_a_narrow_screen_loses_no_name_and_no_digit(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    fill_books(tollhouse)
    tollhouse.does(
        "prices", "set", "m", "--input", "0.123456789", "--output", "123456.123456789", "--cached-input", "9"
    )
    tollhouse.columns = 80
    for command in (("costs", "--by", "tier"), ("prices", "list")):
        shown = tollhouse.does(*command)
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= 80
    costs = tollhouse.does("costs", "--by", "tier")
    assert "acme  small" in costs
    assert "cost: $0.0000012" in costs
    assert "$123,456.123456789" in tollhouse.does("prices", "list")
    assert tollhouse.does("tenants", "list").count("acme") == 1  # what fits stays a table
    assert "requests/min" in tollhouse.does("tenants", "list")


def test_costs_as_json_has_exact_nano_dollars(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    fill_books(tollhouse)
    report = json.loads(tollhouse.does("costs", "--by", "model", "--json"))
    assert report["total"]["cost_nanousd"] == 20_001_160
    assert [row["group"] for row in report["rows"]] == ["m"]


@pytest.mark.parametrize(
    ("nanousd", "decimals", "text"),
    [
        (1_500_000_000, 2, "$1.50"),
        (1_234_567_890_123, 2, "$1,234.57"),
        (1_160, 7, "$0.0000012"),
        (-5, 9, "-$0.000000005"),
        (999_999_999, 2, "$1.00"),
        (0, 2, "$0.00"),
    ],
)
def test_money_is_rounded_and_never_in_scientific_notation(nanousd: int, decimals: int, text: str) -> None:
    assert money(nanousd, decimals) == text


def test_the_smallest_amount_shows_two_digits() -> None:
    assert [decimals_for([amount]) for amount in (0, 5_000_000_000, 120_000_000, 12_000_000, 1_160, 3)] == [
        2,
        2,
        2,
        3,
        7,
        9,
    ]
