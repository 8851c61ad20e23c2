"""`tollhouse keys`: a key is shown once, when it is made; the database holds its hash."""

from pathlib import Path

import click

from gateway.cli.options import config_option, load_config, with_database
from gateway.cli.output import console, table


@click.group("keys")
def keys_group() -> None:
    """Create, list and revoke API keys."""


@keys_group.command("create")
@click.option("--tenant", required=True, help="Whose key it is.")
@click.option("--name", default="", help="To tell keys apart. Default: its first characters.")
@config_option
def create(tenant: str, name: str, config_path: Path) -> None:
    """Create a key and show it, once. The key alone goes to stdout."""
    from gateway.tenants.registry import create_key

    made = with_database(load_config(config_path), lambda database: create_key(database, tenant, name))
    click.echo(f"key {made.key.name} of tenant {tenant}, shown only now:", err=True)
    click.echo(made.secret)


@keys_group.command("list")
@click.option("--tenant", help="Only this tenant's.")
@config_option
def list_(tenant: str | None, config_path: Path) -> None:
    """List keys by their first characters."""
    from gateway.tenants.registry import list_keys

    rows = with_database(load_config(config_path), lambda database: list_keys(database, tenant))
    if not rows:
        click.echo("no keys yet; create one with: tollhouse keys create --tenant NAME")
        return
    shown = table("tenant", "key", "name", "state", "created (UTC)", "id")
    for row in rows:
        state = "revoked" if row.key.disabled else "active"
        created = f"{row.created_at:%Y-%m-%d %H:%M}"
        shown.add_row(row.tenant_name, f"{row.key.prefix}…", row.key.name, state, created, row.key.id)
    console().print(shown)


@keys_group.command("revoke")
@click.argument("key")
@click.option("--tenant", help="Whose key it is, where a name alone is not enough.")
@config_option
def revoke(key: str, tenant: str | None, config_path: Path) -> None:
    """Refuse a key from now on. KEY is its id, its name or its first characters as `keys list` shows them."""
    from gateway.tenants.registry import disable_key

    reference = key.removesuffix("…")
    revoked = with_database(load_config(config_path), lambda database: disable_key(database, reference, tenant))
    click.echo(f"revoked {revoked.prefix}… ({revoked.name})")
