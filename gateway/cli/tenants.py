"""`tollhouse tenants`: who may use the gateway, and how much."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.options import config_option, load_config, with_database
from gateway.cli.output import console, table

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.store.database import Database

_LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
_CAPTURES = ["off", "signals", "text"]


class Setting(click.ParamType[int | str]):
    """A number from 1 on, or one of the words."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.name = "|".join(["N", *words])

    def convert(self, value: int | str, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value in self.words:
            return value
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r} is neither a number from 1 on nor {' nor '.join(self.words)}", param, ctx)
        return number


LIMIT = Setting("unlimited", "none")
TOKENS = Setting("none")


@click.group("tenants")
def tenants_group() -> None:
    """Add, change, list and disable tenants."""


@tenants_group.command("add")
@click.argument("name")
@click.option("--requests-per-minute", type=click.IntRange(min=1), help="Default: what [limits] says.")
@click.option("--tokens-per-minute", type=click.IntRange(min=1), help="Default: what [limits] says.")
@click.option("--concurrent-requests", type=click.IntRange(min=1), help="Default: what [limits] says.")
@click.option("--baseline-model", help="The model that savings are compared with.")
@click.option("--default-max-tokens", type=click.IntRange(min=1), help="Reserved for requests that name no limit.")
@click.option(
    "--capture",
    type=click.Choice(_CAPTURES),
    default="signals",
    show_default=True,
    help="What is kept for learning: nothing, numbers about a prompt, or its text too.",
)
@config_option
def add(
    name: str,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    concurrent_requests: int | None,
    baseline_model: str | None,
    default_max_tokens: int | None,
    capture: str,
    config_path: Path,
) -> None:
    """Add the tenant NAME."""
    from gateway.tenants.registry import create_tenant
    from gateway.tenants.types import Limits

    config = load_config(config_path)
    _check_baseline(config, baseline_model, config_path)
    limits = Limits(
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        concurrent_requests=concurrent_requests,
    )

    async def work(database: "Database") -> None:
        await create_tenant(
            database,
            name,
            limits=limits,
            baseline_model=baseline_model,
            default_max_tokens=default_max_tokens,
            capture=capture,  # type: ignore[arg-type]  # click.Choice has checked it
        )

    with_database(config, work)
    click.echo(f"added tenant {name}; make it a key with: tollhouse keys create --tenant {name}")


@tenants_group.command("set")
@click.argument("name")
@click.option("--requests-per-minute", type=LIMIT, metavar=LIMIT.name, help="none: what [limits] says.")
@click.option("--tokens-per-minute", type=LIMIT, metavar=LIMIT.name, help="none: what [limits] says.")
@click.option("--concurrent-requests", type=LIMIT, metavar=LIMIT.name, help="none: what [limits] says.")
@click.option("--baseline-model", help="none: the config's baseline_model.")
@click.option(
    "--default-max-tokens", type=TOKENS, metavar=TOKENS.name, help="Reserved for requests that name no limit."
)
@click.option("--capture", type=click.Choice(_CAPTURES), help="What is kept for learning.")
@config_option
def set_(name: str, config_path: Path, **given: int | str | None) -> None:
    """Change the tenant NAME: what is named, and nothing else. A running gateway takes it over at once."""
    from gateway.tenants.registry import change_tenant, get_tenant

    config = load_config(config_path)
    changes: dict[str, Any] = {field: _meant(field, value) for field, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("nothing to change: name at least one option")
    _check_baseline(config, changes.get("baseline_model"), config_path)
    own = {field: changes.pop(field) for field in _LIMITS if field in changes}

    async def work(database: "Database") -> None:
        from msgspec.structs import replace

        limits = replace((await get_tenant(database, name)).limits, **own)
        await change_tenant(database, name, limits=limits, **changes)

    with_database(config, work)
    click.echo(f"changed tenant {name}: {', '.join(sorted([*own, *changes]))}")


def _meant(field: str, value: int | str) -> int | str | None:
    if value == "unlimited" and field in _LIMITS:
        return 0
    return None if value == "none" else value


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
        limits = tenant.limits
        numbers = (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests)
        shown.add_row(
            tenant.name,
            "disabled" if tenant.disabled else "active",
            *("" if number is None else f"{number:,}" if number else "unlimited" for number in numbers),
            tenant.baseline_model or "",
            tenant.capture,
        )
    console().print(shown)


@tenants_group.command("disable")
@click.argument("name")
@config_option
def disable(name: str, config_path: Path) -> None:
    """Refuse all keys of the tenant NAME from now on. Its books stay."""
    from gateway.tenants.registry import disable_tenant

    with_database(load_config(config_path), lambda database: disable_tenant(database, name))
    click.echo(f"disabled tenant {name}")


@tenants_group.command("enable")
@click.argument("name")
@config_option
def enable(name: str, config_path: Path) -> None:
    """Accept the tenant NAME again."""
    from gateway.tenants.registry import enable_tenant

    with_database(load_config(config_path), lambda database: enable_tenant(database, name))
    click.echo(f"enabled tenant {name}")
