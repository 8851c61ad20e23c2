"""`tollhouse prices import`: what models cost by the data of the genai-prices package, beside what the table says."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import config_option, load_config, operator, with_database
from gateway.cli.output import print_table, table
from gateway.cli.prices import PARTS, in_force, shown_amount

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.ledger.price import Price
    from gateway.ledger.price_import import Found
    from gateway.store.database import Database


@click.command("import")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--apply", is_flag=True, help="Write the new prices, in force from now on.")
@config_option
def import_(models: tuple[str, ...], apply: bool, config_path: Path) -> None:
    """Compare prices with the data of genai-prices, and take them over with --apply.

    Of all models that a provider serves, or of these; a name that a glob of the config matches is one, too. The data
    is the installed package's own: pip install -U genai-prices brings newer prices. What is booked already stays.
    """
    from gateway.ledger.price_import import look_up, wanted
    from gateway.store.prices import select_prices

    config, now = load_config(config_path), datetime.now(UTC)
    names = wanted(config, models)
    found = [each for name in names if (each := look_up(name, now)) is not None]
    old = {model: row.price for model, row in in_force(with_database(config, select_prices)).items()}
    changed = [each for each in found if old.get(each.model) != each.price]
    _show(found, old)
    if missing := sorted({name.model for name in names} - {each.model for each in found}):
        click.echo(f"unknown to genai-prices, left as they are: {', '.join(missing)}")
    if not changed:
        click.echo("nothing to change")
    elif apply:
        with_database(config, lambda database: _write(database, config, changed))
        click.echo(f"{len(changed)} prices taken over, in force from now on")
    else:
        click.echo(f"{len(changed)} prices would change: --apply takes them over")


async def _write(database: "Database", config: "Config", found: "list[Found]") -> None:
    from gateway.ledger.prices import PriceBook, set_price

    await PriceBook(database).seed(config.model)  # first, or the config's first price would come later and rule
    for each in found:
        await set_price(database, each.model, each.price, source="import", by=operator())


def _show(found: "list[Found]", old: "dict[str, Price]") -> None:
    parts = [part for part in PARTS if part not in ("hour", "reasoning_output")]  # which the data does not have
    columns = [PARTS[part] for part in parts]
    shown = table("model", "in genai-prices", *columns, "remarks", right=columns)
    for each in found:
        amounts = [_step(old.get(each.model), each.price, part) for part in parts]
        shown.add_row(each.model, each.theirs, *amounts, "; ".join(each.remarks))
    print_table(shown)


def _step(old: "Price | None", new: "Price", part: str) -> str:
    """ "$0.15", or "$0.15 -> $0.20" where it changes."""
    before, after = shown_amount(old, part) if old is not None else "", shown_amount(new, part)
    return after if before == after else f"{before or '-'} -> {after or '-'}"
