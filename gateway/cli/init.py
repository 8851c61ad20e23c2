"""`tollhouse init`: everything a first start needs, each step skipped where it has been done. `make serve` runs it."""

from pathlib import Path

import click

from gateway.cli.models import configured, fetch
from gateway.cli.options import config_option, load_config, operator, with_database

DEMO_KEY = "demo-key"  # in the state folder, readable by its owner alone


@click.command("init")
@config_option
def init(config_path: Path) -> None:
    """Pull the models, set up the database and, if there is no tenant yet, create the tenant `demo` with a key.

    The demo key is kept in the state folder (mode 0600), so that the example can be shown at every start. To refuse
    it: `tollhouse tenants disable demo`.
    """
    from gateway.config import home
    from gateway.tenants.registry import create_first_tenant

    config = load_config(config_path)
    for source in configured(config).values():
        fetch(source)
    made = with_database(config, lambda database: create_first_tenant(database, by=operator()))
    if made is None:
        return
    path = home() / DEMO_KEY
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(made.secret + "\n")
    click.echo(f"created the tenant `demo`; its key is {made.secret} (kept in {path})")


def demo_key() -> str | None:
    from gateway.config import home

    try:
        return (home() / DEMO_KEY).read_text().strip() or None
    except OSError:
        return None
