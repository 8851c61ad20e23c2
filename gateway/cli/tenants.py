"""`tollhouse tenants`: who may use the gateway, and how much."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.limits import LIMIT, Setting, cells, limit_options, limits_of, meant
from gateway.cli.options import config_option, load_config, operator, with_database
from gateway.cli.output import print_table, table

if TYPE_CHECKING:
    from gateway.config import Config

_CAPTURES = ["off", "signals", "text"]


TOKENS = Setting("none")


@click.group("tenants")
def tenants_group() -> None:
    """Add, change, list, disable and delete tenants."""


@tenants_group.command("add")
@click.argument("name")
@limit_options("Default: what [limits] says.")
@click.option("--baseline-model", help="The model that savings are compared with.")
@click.option("--default-max-tokens", type=click.IntRange(min=1), help="Reserved for requests that name no limit.")
@click.option(
    "--capture",
    type=click.Choice(_CAPTURES),
    default="signals",
    show_default=True,
    help="What is kept for learning: nothing, numbers about a prompt, or its text too.",
)
@click.option("--retention-days", type=click.IntRange(min=0), help="How long; 0: for ever. Default: as [store] says.")
@config_option
def add(name: str, config_path: Path, **given: Any) -> None:
    """Add the tenant NAME."""
    from gateway.tenants.registry import create_tenant

    config = load_config(config_path)
    _check_baseline(config, given["baseline_model"], config_path)
    limits = limits_of(given)
    with_database(config, lambda database: create_tenant(database, name, limits=limits, by=operator(), **given))
    click.echo(f"added tenant {name}; make it a key with: tollhouse keys create --tenant {name}")


@tenants_group.command("set")
@click.argument("name")
@click.option("--name", "new_name", help="Another name.")
@limit_options("none: what [limits] says.")
@click.option("--baseline-model", help="none: the config's baseline_model.")
@click.option(
    "--default-max-tokens", type=TOKENS, metavar=TOKENS.name, help="Reserved for requests that name no limit."
)
@click.option("--capture", type=click.Choice(_CAPTURES), help="What is kept for learning.")
@click.option("--retention-days", type=LIMIT, metavar=LIMIT.name, help="How long, in days. none: as [store] says.")
@config_option
def set_(name: str, new_name: str | None, config_path: Path, **given: Any) -> None:
    """Change the tenant NAME: what is named, and nothing else. A running gateway takes it over at once."""
    from gateway.tenants.registry import change_tenant

    config, changes = load_config(config_path), meant(given | {"name": new_name})
    if not changes:
        raise click.UsageError("nothing to change: name at least one option")
    _check_baseline(config, changes.get("baseline_model"), config_path)
    with_database(config, lambda database: change_tenant(database, name, by=operator(), **changes))
    click.echo(f"changed tenant {name}: {', '.join(sorted(changes))}")


def _check_baseline(config: "Config", name: str | None, path: Path) -> None:
    if name and name not in [model.name for model in config.model]:
        raise click.BadParameter(f"no model named {name!r} in {path}", param_hint="--baseline-model")


@tenants_group.command("list")
@config_option
def list_(config_path: Path) -> None:
    """List all tenants, with their own limits."""
    from gateway.tenants.registry import list_tenants

    found = with_database(load_config(config_path), list_tenants)
    if not found:
        click.echo("no tenants yet; add one with: tollhouse tenants add NAME")
        return
    columns = ("requests/min", "tokens/min", "concurrent")
    shown = table("tenant", "state", *columns, "baseline model", "capture", right=columns)
    for tenant in found:
        state = "disabled" if tenant.disabled else "active"
        shown.add_row(tenant.name, state, *cells(tenant.limits), tenant.baseline_model or "", tenant.capture)
    print_table(shown)


@tenants_group.command("disable")
@click.argument("name")
@config_option
def disable(name: str, config_path: Path) -> None:
    """Refuse all keys of the tenant NAME from now on. Its books stay."""
    from gateway.tenants.registry import disable_tenant

    with_database(load_config(config_path), lambda database: disable_tenant(database, name, by=operator()))
    click.echo(f"disabled tenant {name}")


@tenants_group.command("enable")
@click.argument("name")
@config_option
def enable(name: str, config_path: Path) -> None:
    """Accept the tenant NAME again."""
    from gateway.tenants.registry import enable_tenant

    with_database(load_config(config_path), lambda database: enable_tenant(database, name, by=operator()))
    click.echo(f"enabled tenant {name}")


@tenants_group.command("erase")
@click.argument("name")
@click.confirmation_option(prompt="Its texts, embeddings, stored responses and files go for good. Sure?")
@config_option
def erase(name: str, config_path: Path) -> None:
    """Forget what the tenant NAME asked and was answered by now, and keep what it cost.

    Gateways forget its cached answers within a second. Disable it first if nothing may follow.
    """
    from gateway.tenants.erase import erase_tenant

    gone = with_database(load_config(config_path), lambda database: erase_tenant(database, name, by=operator()))
    click.echo(f"erased {name}: {gone.decisions} decisions, {gone.requests} requests' texts, {gone.stored} stored")


@tenants_group.command("delete")
@click.argument("name")
@click.confirmation_option(prompt="Its teams and keys go for good. Sure?")
@config_option
def delete(name: str, config_path: Path) -> None:
    """Remove the disabled tenant NAME with its teams and keys. Its books stay, under its id."""
    from gateway.tenants.registry import delete_tenant

    gone = with_database(load_config(config_path), lambda database: delete_tenant(database, name, by=operator()))
    click.echo(f"deleted tenant {name}; its books are under {gone.id}")
