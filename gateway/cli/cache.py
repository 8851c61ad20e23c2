"""`tollhouse cache`: what every running gateway is to forget."""

from pathlib import Path

import click

from gateway.cli.options import config_option, load_config, operator, with_database


@click.group("cache")
def cache_group() -> None:
    """Clear stored answers. Running gateways do so within a second, and copies in Redis are used no more."""


@cache_group.command("clear")
@click.option("--tenant", help="Only this tenant's answers.")
@config_option
def clear(tenant: str | None, config_path: Path) -> None:
    """Forget every answer that is stored now."""
    from gateway.tenants.erasures import clear_cache

    with_database(load_config(config_path), lambda database: clear_cache(database, tenant, by=operator()))
    click.echo(f"every gateway forgets the answers stored for {tenant or 'all tenants'}")


@cache_group.command("invalidate")
@click.argument("entry")
@config_option
def invalidate(entry: str, config_path: Path) -> None:
    """Forget the stored answer ENTRY, as the header x-tollhouse-cache-entry of its hits names it."""
    from gateway.tenants.erasures import invalidate_entry

    with_database(load_config(config_path), lambda database: invalidate_entry(database, entry, by=operator()))
    click.echo(f"every gateway forgets the answer {entry}")
