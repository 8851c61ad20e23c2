"""`tollhouse budgets`: what tenants, teams and keys may spend in a UTC day or month."""

from decimal import Decimal
from pathlib import Path

import click

from gateway.cli.options import config_option, load_config, operator, with_database
from gateway.cli.output import exact_money, print_table, share, table

_PERIODS = ("day", "month")
_DIGITS = 25  # of nano-dollars; what a budget may be at most is for others to say


class Amount(click.ParamType[int]):
    """Dollars as written, in nano-dollars."""

    name = "USD"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            nanousd = Decimal(value.removeprefix("$").replace(",", "")) * 10**9
            is_amount = 0 <= nanousd < 10**_DIGITS and nanousd == nanousd.to_integral_value()
        except ArithmeticError:  # no number, or one beyond all that decimals can hold
            is_amount = False
        if not is_amount:
            self.fail(f"{value!r} is not an amount in dollars such as 25 or 0.50", param, ctx)
        return int(nanousd)


class Percents(click.ParamType[tuple[int, ...]]):
    name = "PERCENTS"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(each) for each in value.split(",") if each.strip())
        except ValueError:
            self.fail(f"{value!r} is no list of percents such as 80,100", param, ctx)


@click.group("budgets")
def budgets_group() -> None:
    """Set, list and remove budgets in dollars."""


@budgets_group.command("set")
@click.argument("tenant")
@click.argument("amount", type=Amount())
@click.option("--per", "period", type=click.Choice(_PERIODS), required=True, help="A UTC day or a UTC month.")
@click.option("--team", help="Of this team's keys together, not of the whole tenant.")
@click.option("--key", help="Of this key alone: its id, first characters or name.")
@click.option("--soft", is_flag=True, help="Refuse nothing: warn in a header and by webhook.")
@click.option("--warn-at", type=Percents(), default="80,100", show_default=True, help="Marks in percent of the amount.")
@click.option("--webhook", default="", metavar="URL", help="Who is told. Default: the config's [webhooks] url.")
@config_option
def set_(
    tenant: str,
    amount: int,
    period: str,
    team: str | None,
    key: str | None,
    soft: bool,
    warn_at: tuple[int, ...],
    webhook: str,
    config_path: Path,
) -> None:
    """Let TENANT spend AMOUNT dollars, such as 25 or 0.50. What was spent in this period so far counts.

    It takes the place of the budget of the same owner, period and hardness; a running gateway takes it over at once.
    """
    from gateway.tenants.budgets import set_budget

    config = load_config(config_path)
    budget = with_database(
        config,
        lambda database: set_budget(
            database,
            tenant,
            team=team,
            key=key.removesuffix("…") if key else None,
            period=period,  # type: ignore[arg-type]  # click.Choice has checked it
            amount_nanousd=amount,
            hard=not soft,
            warn_percents=warn_at,
            webhook_url=webhook,
            allow_private_webhooks=config.security.allow_private_webhooks,
            by=operator(),
        ),
    )
    kind = "hard" if budget.hard else "soft"
    click.echo(f"{kind} budget of {exact_money(amount)} a {period} for {_whose(tenant, team, key)}")


@budgets_group.command("list")
@click.option("--tenant", help="Only this tenant's.")
@config_option
def list_(tenant: str | None, config_path: Path) -> None:
    """List budgets with what was spent so far in their present day or month."""
    from gateway.tenants.budgets import list_budgets

    rows = with_database(load_config(config_path), lambda database: list_budgets(database, tenant))
    if not rows:
        click.echo("no budgets yet; set one with: tollhouse budgets set TENANT AMOUNT --per month")
        return
    numbers = ("budget", "spent", "share")
    shown = table("tenant", "whose", "per", "kind", *numbers, "warns at", right=numbers)
    for row in rows:
        budget = row.budget
        whose = "" if budget.owner_kind == "tenant" else f"{budget.owner_kind} {row.owner_name}"
        marks = ", ".join(f"{percent}%" for percent in budget.warn_percents)
        kind = "hard" if budget.hard else "soft"
        spent = (exact_money(budget.amount_nanousd), exact_money(row.spent_nanousd))
        part = share(row.spent_nanousd, budget.amount_nanousd)
        shown.add_row(row.tenant_name, whose, budget.period, kind, *spent, part, marks)
    print_table(shown)


@budgets_group.command("remove")
@click.argument("tenant")
@click.option("--per", "period", type=click.Choice(_PERIODS), required=True)
@click.option("--team", help="This team's.")
@click.option("--key", help="This key's: its id, first characters or name.")
@click.option("--soft", is_flag=True, help="The soft one.")
@config_option
def remove(tenant: str, period: str, team: str | None, key: str | None, soft: bool, config_path: Path) -> None:
    """Remove a budget of TENANT. A running gateway takes it over at once."""
    from gateway.tenants.budgets import remove_budget

    budget = with_database(
        load_config(config_path),
        lambda database: remove_budget(
            database,
            tenant,
            team=team,
            key=key.removesuffix("…") if key else None,
            period=period,  # type: ignore[arg-type]  # click.Choice has checked it
            hard=not soft,
            by=operator(),
        ),
    )
    click.echo(f"removed the budget of {exact_money(budget.amount_nanousd)} a {period} for {_whose(tenant, team, key)}")


def _whose(tenant: str, team: str | None, key: str | None) -> str:
    if team:
        return f"team {team} of {tenant}"
    return f"key {key} of {tenant}" if key else tenant
