"""`tollhouse teams`: groups of a tenant's keys, with limits that they share."""

from pathlib import Path
from typing import Any

import click

from gateway.cli.limits import cells, limit_options, limits_of, meant
from gateway.cli.options import config_option, load_config, operator, with_database
from gateway.cli.output import print_table, table

of_tenant = click.option("--tenant", required=True, help="Whose team it is.")


@click.group("teams")
def teams_group() -> None:
    """Add, change, list and disable teams of keys."""


@teams_group.command("add")
@click.argument("name")
@of_tenant
@limit_options("That the team's keys share.")
@config_option
def add(name: str, tenant: str, config_path: Path, **given: Any) -> None:
    """Add the team NAME."""
    from gateway.tenants.registry import create_team

    limits = limits_of(given)
    with_database(
        load_config(config_path), lambda database: create_team(database, tenant, name, limits=limits, by=operator())
    )
    click.echo(f"added team {name}; make it a key with: tollhouse keys create --tenant {tenant} --team {name}")


@teams_group.command("set")
@click.argument("name")
@of_tenant
@click.option("--name", "new_name", help="Another name.")
@limit_options("That the team's keys share; none: only their tenant's.")
@config_option
def set_(name: str, tenant: str, new_name: str | None, config_path: Path, **given: Any) -> None:
    """Change the team NAME: what is named, and nothing else. Running gateways take it over within a second."""
    from gateway.tenants.registry import change_team

    changes = meant(given | {"name": new_name})
    if not changes:
        raise click.UsageError("nothing to change: name at least one option")
    with_database(
        load_config(config_path), lambda database: change_team(database, tenant, name, by=operator(), **changes)
    )
    click.echo(f"changed team {name}: {', '.join(sorted(changes))}")


@teams_group.command("list")
@click.option("--tenant", help="Only this tenant's.")
@config_option
def list_(tenant: str | None, config_path: Path) -> None:
    """List teams, with their limits."""
    from gateway.tenants.registry import list_teams

    rows = with_database(load_config(config_path), lambda database: list_teams(database, tenant))
    if not rows:
        click.echo("no teams yet; add one with: tollhouse teams add NAME --tenant TENANT")
        return
    columns = ("keys", "requests/min", "tokens/min", "concurrent")
    shown = table("tenant", "team", "state", *columns, right=columns)
    for row in rows:
        state = "disabled" if row.team.disabled else "active"
        shown.add_row(row.tenant_name, row.team.name, state, str(row.num_keys), *cells(row.team.limits))
    print_table(shown)


@teams_group.command("disable")
@click.argument("name")
@of_tenant
@config_option
def disable(name: str, tenant: str, config_path: Path) -> None:
    """Refuse all keys of the team NAME from now on."""
    from gateway.tenants.registry import disable_team

    with_database(load_config(config_path), lambda database: disable_team(database, tenant, name, by=operator()))
    click.echo(f"disabled team {name}")


@teams_group.command("enable")
@click.argument("name")
@of_tenant
@config_option
def enable(name: str, tenant: str, config_path: Path) -> None:
    """Accept the team NAME again."""
    from gateway.tenants.registry import enable_team

    with_database(load_config(config_path), lambda database: enable_team(database, tenant, name, by=operator()))
    click.echo(f"enabled team {name}")
