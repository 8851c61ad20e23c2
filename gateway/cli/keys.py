"""`tollhouse keys`: a key is shown once, when it is made or rotated; the database holds its hash."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.limits import LIMITS, cells, limit_options, limits_of, meant
from gateway.cli.moments import Duration, Expiry
from gateway.cli.options import config_option, load_config, operator, with_database
from gateway.cli.output import print_table, table
from gateway.cli.scopes import FIELDS, in_short, listed, scope_options, told

if TYPE_CHECKING:
    from gateway.store.keys import KeyRow

of_tenant = click.option("--tenant", help="Whose key it is, where a name alone is not enough.")


@click.group("keys")
def keys_group() -> None:
    """Create, list, narrow, rotate and revoke API keys."""


@keys_group.command("create")
@click.option("--tenant", required=True, help="Whose key it is.")
@click.option("--name", default="", help="To tell keys apart. Default: its first characters.")
@click.option("--team", help="The team of the tenant that it belongs to.")
@scope_options
@click.option("--expires", "expires_at", type=Expiry(), help="A time, or how long from now: 30d, 12h.")
@limit_options("Of the key itself, beside its tenant's and team's.")
@config_option
def create(tenant: str, name: str, team: str | None, expires_at: Any, config_path: Path, **given: Any) -> None:
    """Create a key and show it, once. The key alone goes to stdout.

    Without --models, --tiers, --endpoints and --ip it may be used for everything, from everywhere.
    """
    from gateway.tenants.registry import create_key
    from gateway.tenants.types import Scope

    limits = limits_of(given)
    scope = Scope(**{field: listed(text) for field, text in given.items()})
    made = with_database(
        load_config(config_path),
        lambda database: create_key(
            database, tenant, name, team=team, scope=scope, limits=limits, expires_at=expires_at, by=operator()
        ),
    )
    click.echo(f"key {made.key.name} of tenant {tenant}, shown only now:", err=True)
    click.echo(made.secret)


@keys_group.command("set")
@click.argument("key")
@of_tenant
@click.option("--name", help="Another name.")
@click.option("--team", help="Another team; none: no team.")
@scope_options
@click.option("--expires", "expires_at", type=Expiry("none"), help="A time, or how long from now.")
@limit_options("Of the key itself; none: only its tenant's and team's.")
@config_option
def set_(key: str, tenant: str | None, config_path: Path, **given: Any) -> None:
    """Change what KEY may do: what is named, and nothing else. `none` lifts a restriction.

    Running gateways take it over within a second.
    """
    from gateway.tenants.registry import change_key

    changes = meant(given)
    if not changes:
        raise click.UsageError("nothing to change: name at least one option")
    for field in FIELDS.values():
        if field in changes:
            changes[field] = listed(changes[field])
    changed = with_database(
        load_config(config_path),
        lambda database: change_key(database, _reference(key), tenant, by=operator(), **changes),
    )
    click.echo(f"changed {changed.prefix}… ({changed.name}): {', '.join(sorted(changes))}")


@keys_group.command("list")
@click.option("--tenant", help="Only this tenant's.")
@click.option("--team", help="Only this team's.")
@config_option
def list_(tenant: str | None, team: str | None, config_path: Path) -> None:
    """List keys by their first characters. `keys show` says all about one."""
    from gateway.tenants.registry import list_keys

    rows = with_database(load_config(config_path), lambda database: list_keys(database, tenant))
    rows = [row for row in rows if team in (None, row.team_name)]
    if not rows:
        click.echo("no keys yet; create one with: tollhouse keys create --tenant NAME")
        return
    shown = table("tenant", "team", "key", "name", "state", "good for")
    for row in rows:
        key = row.key
        shown.add_row(
            row.tenant_name, row.team_name or "", f"{key.prefix}…", key.name, _state(row), in_short(key.scope)
        )
    print_table(shown)


@keys_group.command("show")
@click.argument("key")
@of_tenant
@config_option
def show(key: str, tenant: str | None, config_path: Path) -> None:
    """Say all about KEY, but the key itself."""
    from gateway.tenants.registry import get_key

    row = with_database(load_config(config_path), lambda database: get_key(database, _reference(key), tenant))
    found, limits = row.key, dict(zip(LIMITS, cells(row.key.limits), strict=True))
    lines = {
        "key": f"{found.prefix}…",
        "name": found.name,
        "id": found.id,
        "tenant": row.tenant_name,
        "team": row.team_name or "none",
        "state": _state(row),
        "created": _time(row.created_at),
        "expires": _time(found.expires_at) if found.expires_at else "never",
    }
    if row.previous_until is not None and row.previous_until > datetime.now(UTC):
        lines["old secret until"] = _time(row.previous_until)
    lines |= {option: written or "all" for option, written in told(found.scope)}
    lines |= {name.replace("_", " "): shown or "none of its own" for name, shown in limits.items()}
    for label, text in lines.items():
        click.echo(f"{label:<22}{text}")


@keys_group.command("rotate")
@click.argument("key")
@of_tenant
@click.option(
    "--overlap",
    type=Duration(),
    default="1h",
    show_default=True,
    help="How long the old secret works on; 0s: not at all.",
)
@config_option
def rotate(key: str, tenant: str | None, overlap: float, config_path: Path) -> None:
    """Give KEY a new secret and show it, once. The key alone goes to stdout.

    Name, scope, limits and books stay. A second rotation within the overlap ends the first one's.
    """
    from gateway.tenants.registry import rotate_key

    made = with_database(
        load_config(config_path),
        lambda database: rotate_key(database, _reference(key), tenant, overlap_s=overlap, by=operator()),
    )
    click.echo(f"key {made.key.name}, shown only now; the old one works for {overlap:g} s more:", err=True)
    click.echo(made.secret)


@keys_group.command("revoke")
@click.argument("key")
@of_tenant
@config_option
def revoke(key: str, tenant: str | None, config_path: Path) -> None:
    """Refuse a key from now on. KEY is its id, its name or its first characters as `keys list` shows them."""
    from gateway.tenants.registry import disable_key

    revoked = with_database(
        load_config(config_path), lambda database: disable_key(database, _reference(key), tenant, by=operator())
    )
    click.echo(f"revoked {revoked.prefix}… ({revoked.name})")


@keys_group.command("restore")
@click.argument("key")
@of_tenant
@config_option
def restore(key: str, tenant: str | None, config_path: Path) -> None:
    """Accept a revoked key again."""
    from gateway.tenants.registry import enable_key

    restored = with_database(
        load_config(config_path), lambda database: enable_key(database, _reference(key), tenant, by=operator())
    )
    click.echo(f"restored {restored.prefix}… ({restored.name})")


def _reference(shown: str) -> str:
    return shown.removesuffix("…")


def _state(row: "KeyRow") -> str:
    expires_at = row.key.expires_at
    if row.key.disabled:
        return "revoked"
    if expires_at is None:
        return "active"
    return "expired" if expires_at <= datetime.now(UTC) else f"until {expires_at:%Y-%m-%d}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
