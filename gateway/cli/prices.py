"""`tollhouse prices`: what models cost. The config's prices rule until somebody sets others, and again once edited."""

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.moments import Moment
from gateway.cli.options import config_option, load_config, operator, with_database
from gateway.cli.output import exact_money, print_table, table

if TYPE_CHECKING:
    from gateway.ledger.price import Price
    from gateway.store.database import Database
    from gateway.store.prices import PriceRow

PARTS = {
    "input": "in",
    "output": "out",
    "cached_input": "cached",
    "cache_write_input": "cache write",
    "reasoning_output": "reasoning",
    "hour": "engine",
}
_MAX_USD = 1_000_000  # per million tokens: a dollar a token


class Dollars(click.ParamType[Decimal]):
    """Kept as written: 0.1 is a tenth, not its nearest float."""

    name = "USD"

    def convert(self, value: str | Decimal, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            amount = Decimal(value)
        except InvalidOperation:
            self.fail(f"{value!r} is not an amount in dollars such as 0.15", param, ctx)
        if not amount.is_finite() or not 0 <= amount <= _MAX_USD:
            self.fail(f"{value} is not from 0 to {_MAX_USD:,} dollars per million tokens", param, ctx)
        return amount


@click.group("prices")
def prices_group() -> None:
    """Set and list what models cost."""


@prices_group.command("set")
@click.argument("model")
@click.option("--input", "input_", type=Dollars(), required=True, help="Per million prompt tokens.")
@click.option("--output", type=Dollars(), required=True, help="Per million completion tokens.")
@click.option("--cached-input", type=Dollars(), help="Per million cached prompt tokens. Default: as --input.")
@click.option("--cache-write-input", type=Dollars(), help="Per million written to a prompt cache. Default: as --input.")
@click.option("--reasoning-output", type=Dollars(), help="Per million reasoning tokens. Default: as --output.")
@click.option("--valid-from", type=Moment(), help="UTC unless it names a zone. Default: now.")
@config_option
def set_(model: str, input_: Decimal, valid_from: datetime | None, config_path: Path, **others: Decimal | None) -> None:
    """Set the price of MODEL, in dollars; a running gateway takes it over at once.

    It holds until a later one, or until the config's own price of the model is edited. What is booked already stays.
    """
    from gateway.ledger.prices import PriceBook, price_in_dollars, set_price
    from gateway.store.errors import DuplicateRow
    from gateway.store.prices import select_prices

    config = load_config(config_path)
    given = {"input": input_} | {name: amount for name, amount in others.items() if amount is not None}
    price = price_in_dollars({f"{name}_usd_per_mtok": amount for name, amount in given.items()})
    if not any(model == known.name or fnmatchcase(model, known.name) for known in config.model):
        raise click.BadParameter(f"no model named {model!r} in {config_path}", param_hint="MODEL")

    async def work(database: "Database") -> "tuple[PriceRow, list[PriceRow]]":
        await PriceBook(database).seed(config.model)  # first, or the config's first price would come later and rule
        row = await set_price(database, model, price, valid_from=valid_from, by=operator())
        return row, await select_prices(database)

    try:
        row, rows = with_database(config, work)
    except DuplicateRow as error:
        raise click.ClickException(f"{model} has a price from {valid_from:%Y-%m-%d %H:%M} UTC on already") from error
    click.echo(f"{model}: {described(price)}, from {row.valid_from:%Y-%m-%d %H:%M} UTC on")
    ruling = in_force(rows).get(model)
    if ruling is not None and ruling.valid_from > row.valid_from:
        click.echo(f"but a later price rules since {ruling.valid_from:%Y-%m-%d %H:%M} UTC", err=True)


@prices_group.command("list")
@click.option("--history", is_flag=True, help="Those that rule no more, too.")
@config_option
def list_(history: bool, config_path: Path) -> None:
    """Show prices in dollars per million tokens, or per hour: those that rule now, and those to come."""
    from gateway.store.prices import select_prices

    rows = with_database(load_config(config_path), select_prices)
    if not rows:
        click.echo("no prices yet: the config's are taken over when the gateway starts")
        return
    now, ruling = datetime.now(UTC), in_force(rows)
    columns = [f"{name} per hour" if name == "engine" else name for name in PARTS.values()]
    shown = table("model", *columns, "valid from (UTC)", "set by", "state", right=columns)
    for row in sorted(rows, key=lambda row: row.model):  # stable: each model's stay in the order of time
        state = "to come" if row.valid_from > now else "in force" if row is ruling[row.model] else "past"
        if history or state != "past":
            amounts = [shown_amount(row.price, name) for name in PARTS]
            shown.add_row(row.model, *amounts, f"{row.valid_from:%Y-%m-%d %H:%M}", row.source, state)
    print_table(shown)


def described(price: "Price") -> str:
    """In words: "$0.15 in, $0.60 out per million tokens"."""
    if price.hour is not None:
        return f"{exact_money(price.hour)} for an hour of the engine"
    amounts = {word: shown_amount(price, name) for name, word in PARTS.items()}
    return ", ".join(f"{amount} {word}" for word, amount in amounts.items() if amount) + " per million tokens"


def shown_amount(price: "Price", name: str) -> str:
    """Of one of PARTS; "" where it is not told apart, or does not count."""
    amount: int | None = getattr(price, name)
    return "" if amount is None or (price.hour is not None and name != "hour") else exact_money(amount)


def in_force(rows: "list[PriceRow]") -> "dict[str, PriceRow]":
    """Each model's row that rules now; of history, oldest first."""
    now = datetime.now(UTC)
    return {row.model: row for row in rows if row.valid_from <= now}
