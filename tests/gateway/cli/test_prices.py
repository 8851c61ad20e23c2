"""Prices: set by hand, in time, and imported."""

import asyncio

import pytest

from gateway.config import load
from gateway.ledger.price import Price
from gateway.ledger.prices import PriceBook
from gateway.store.database import Database
from gateway.store.url import sqlite_url
from tests.gateway.cli.conftest import Tollhouse


@pytest.mark.parametrize("amount", ["nan", "inf", "-1", "1e999999", "1e-999999", "0.0000000001", "a", ""])
def test_what_is_no_amount_is_said_to_be_none(tollhouse: Tollhouse, amount: str) -> None:
    tollhouse("tenants", "add", "acme")
    said = tollhouse.fails("budgets", "set", "--per", "day", "--", "acme", amount, code=2)
    assert "is not an amount in dollars" in said


def test_an_operators_price_rules_over_the_configs(tollhouse: Tollhouse) -> None:
    assert "no prices yet" in tollhouse.does("prices", "list")
    assert "$0.15 in, $0.60 out, $0.075 cached per million" in tollhouse.does(
        "prices", "set", "m", "--input", "0.15", "--output", "0.6", "--cached-input", "0.075"
    )

    async def price() -> Price:
        database = Database(sqlite_url(tollhouse.home))
        await database.open()
        book = PriceBook(database)
        await book.start(load(tollhouse.config).model)  # as the gateway does at its start
        found = book.price("m")
        await book.aclose()
        await database.aclose()
        return found

    assert asyncio.run(price()) == Price(input=150_000_000, output=600_000_000, cached_input=75_000_000)
    (line,) = (line for line in tollhouse.does("prices", "list").splitlines() if line.startswith("m "))
    assert line.split()[1:4] == ["$0.15", "$0.60", "$0.075"]
    assert "operator" in line
    assert "in force" in line
    assert "past" in tollhouse.does("prices", "list", "--history")  # the config's


def test_a_price_may_begin_later_or_come_too_late(tollhouse: Tollhouse) -> None:
    amounts = ("--input", "1", "--output", "2")
    tollhouse.does("prices", "set", "m", *amounts, "--valid-from", "2999-01-01T01:00+01:00")
    assert "2999-01-01 00:00" in tollhouse.does("prices", "list")
    assert "to come" in tollhouse.does("prices", "list")
    result = tollhouse("prices", "set", "m", *amounts, "--valid-from", "2001-01-01")
    assert result.exit_code == 0
    assert "a later price rules since" in result.stderr
    assert "already" in tollhouse.fails("prices", "set", "m", *amounts, "--valid-from", "2001-01-01")


IMPORTED = """
[[provider]]
name = "openai"
base_url = "https://api.openai.com/v1"
[[model]]
name = "gpt-4o-mini"
provider = "openai"
input_usd_per_mtok = 9.0
[[model]]
name = "gpt-4.1*"
provider = "openai"
"""


def test_prices_are_imported_once_they_were_looked_at(tollhouse: Tollhouse) -> None:
    tollhouse.config.write_text(tollhouse.config.read_text().replace("[[model]]", IMPORTED + "[[model]]", 1))
    tollhouse.does("prices", "set", "gpt-4o-mini", "--input", "9", "--output", "9")
    shown = tollhouse.does("prices", "import")
    assert "$9.00 -> $0.15" in shown
    assert "unknown to genai-prices, left as they are: m" in shown
    assert "1 prices would change: --apply takes them over" in shown
    assert "import" not in tollhouse.does("prices", "list", "--history")  # nothing has happened
    assert "1 prices taken over" in tollhouse.does("prices", "import", "--apply")
    lines = tollhouse.does("prices", "list", "--history").splitlines()
    past, now = [line.split() for line in lines if line.startswith("gpt-4o-mini")][-2:]
    assert (past[1], past[-1], now[1:4]) == ("$9.00", "past", ["$0.15", "$0.60", "$0.075"])
    assert "nothing to change" in tollhouse.does("prices", "import", "--apply")
    assert "$2.00" in tollhouse.does("prices", "import", "gpt-4.1")
    assert "no model named 'gpt-5'" in tollhouse.fails("prices", "import", "gpt-5")
