"""`tollhouse costs`: what was spent and saved, out of the ledger."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import config_option, load_config, with_database
from gateway.cli.output import decimals_for, money, print_table, share, table

if TYPE_CHECKING:
    from gateway.ledger.reports import CostReport
    from gateway.store.reports import CostRow

_NUMBERS = ("requests", "failed", "cache hits", "tokens in", "tokens out", "cost", "saved by cache", "saved by routing")


@click.command("costs")
@click.option("--tenant", help="Only this tenant.")
@click.option("--since", metavar="DAY", help="From this UTC day on: 2026-11-30, or 7d for a week back.")
@click.option(
    "--by",
    type=click.Choice(["day", "model", "tier"]),
    default="day",
    show_default=True,
    help="What a line stands for.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with money in nano-dollars.")
@config_option
def costs(tenant: str | None, since: str | None, by: str, as_json: bool, config_path: Path) -> None:
    """Show what was spent and saved. Answers of the last second may still be on their way into the ledger."""
    import msgspec

    from gateway.ledger.reports import costs as report_costs
    from gateway.ledger.reports import parse_since

    try:
        day = parse_since(since) if since else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error
    except OverflowError as error:
        raise click.BadParameter(f"{since} is before the first day that there is", param_hint="--since") from error
    report = with_database(
        load_config(config_path),
        lambda database: report_costs(database, by=by, tenant=tenant, since=day),  # type: ignore[arg-type]
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    elif not report.rows:
        click.echo("nothing in the books yet" if since is None else f"nothing in the books since {day}")
    else:
        _show(report)


def _show(report: "CostReport") -> None:
    amounts = [
        amount
        for row in report.rows
        for amount in (row.cost_nanousd, row.saved_by_cache_nanousd, row.saved_by_routing_nanousd)
    ]
    decimals = decimals_for(amounts)
    shown = table("tenant", report.by, *_NUMBERS, right=_NUMBERS)
    for row in report.rows:
        shown.add_row(row.tenant_name, row.group or "(none)", *_cells(row, decimals))
    shown.add_section()
    shown.add_row("total", "", *_cells(report.total, decimals), style="bold")
    print_table(shown)


def _cells(row: "CostRow", decimals: int) -> list[str]:
    return [
        f"{row.num_requests:,}",
        f"{row.num_failed:,}" if row.num_failed else "",
        f"{row.num_hits:,} {share(row.num_hits, row.num_requests):>4}",
        f"{row.prompt_tokens:,}",
        f"{row.completion_tokens:,}",
        money(row.cost_nanousd, decimals),
        money(row.saved_by_cache_nanousd, decimals),
        money(row.saved_by_routing_nanousd, decimals),
    ]
