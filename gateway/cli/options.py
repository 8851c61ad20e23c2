"""What several commands share: where the config is, and a database opened for the length of one command."""

import asyncio
import getpass
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.store.database import Database
    from gateway.tenants.audit import Actor

T = TypeVar("T")

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("config.toml"),
    envvar="TOLLHOUSE_CONFIG",
    show_default=True,
    show_envvar=True,
    help="The configuration file.",
)


def load_config(path: Path) -> "Config":
    from gateway.config import load

    return load(path)


def operator() -> "Actor":
    """Who gives the commands, for the audit table: the system's user at this host."""
    from gateway.tenants.audit import Actor

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = f"uid {os.getuid()}"
    return Actor("cli", user, socket.gethostname())


def with_database(config: "Config", work: "Callable[[Database], Awaitable[T]]") -> T:
    """Opens the configured database (and migrates it), runs `work`, closes it."""
    from gateway.config import home
    from gateway.store.database import Database
    from gateway.store.url import sqlite_url

    async def run() -> T:
        database = Database(config.store.database_url or sqlite_url(home()))
        try:
            await database.open()
            return await work(database)
        finally:
            await database.aclose()

    return asyncio.run(run())
