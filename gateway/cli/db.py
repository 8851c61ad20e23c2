"""`tollhouse db`: the schema. Every command and every start brings it up to date; this one does nothing else."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import config_option, load_config, with_database

if TYPE_CHECKING:
    from gateway.store.database import Database


@click.group("db")
def db_group() -> None:
    """Look after the database."""


@db_group.command("upgrade")
@config_option
def upgrade(config_path: Path) -> None:
    """Bring the schema up to date. Safe to run twice, and while gateways run."""

    async def work(database: "Database") -> str:
        return database.dialect

    click.echo(f"the {with_database(load_config(config_path), work)} schema is up to date")
