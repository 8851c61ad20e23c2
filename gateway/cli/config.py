"""`tollhouse config`: what is wrong with a config file, all of it at once; and what is in force."""

from pathlib import Path

import click

from gateway.cli.options import config_option, load_config


@click.group("config")
def config_group() -> None:
    """Check and show a configuration file."""


@config_group.command("check")
@click.argument("path", required=False, type=click.Path(dir_okay=False, path_type=Path))
@config_option
def check(path: Path | None, config_path: Path) -> None:
    """Check PATH, or the file that --config names."""
    from gateway.config import home
    from gateway.config_check import ConfigError
    from gateway.config_trial import try_out
    from gateway.engine_check import check_engines

    path = path or config_path
    try:
        config = load_config(path)
        notes = check_engines(config, home() / "models")
    except ConfigError as error:
        count = len(error.faults)
        click.echo(f"{path}: {count} {'fault' if count == 1 else 'faults'}", err=True)
        for fault in error.faults:
            click.echo(f"  {fault}", err=True)
        raise click.exceptions.Exit(1) from error
    try_out(config)
    click.echo(f"{path}: fine. {len(config.model)} models, {len(config.tier)} tiers, {len(config.engine)} engines")
    for note in notes:
        click.echo(f"note: {note}")
    for provider in config.provider:
        if not provider.usable:
            click.echo(f"note: {provider.api_key_env} is not set: models of provider {provider.name!r} are passed over")


@config_group.command("show")
@config_option
def show(config_path: Path) -> None:
    """Print the config with its defaults, as JSON. Secrets are left out."""
    import msgspec

    from gateway.config_view import shown

    click.echo(msgspec.json.format(msgspec.json.encode(shown(load_config(config_path)))).decode())
