"""Alembic's entry: a connection handed over by the program, or, for the `alembic` command, one made here.

The command takes `-x url=...`, else the database of config.toml (or of the file named by TOLLHOUSE_CONFIG).
"""

import asyncio
import os
from pathlib import Path

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.config import home, load
from gateway.store.file_tables import metadata  # with all the others
from gateway.store.url import parse_url, sqlite_url


def configured_url() -> str:
    given = context.get_x_argument(as_dictionary=True).get("url")
    if given:
        return given
    path = Path(os.environ.get("TOLLHOUSE_CONFIG", "config.toml"))
    return (load(path).store.database_url if path.exists() else "") or sqlite_url(home())


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


async def run_by_command() -> None:
    url = parse_url(configured_url())
    if url.get_backend_name() == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(run)
    await engine.dispose()


if context.is_offline_mode():
    context.configure(url=parse_url(configured_url()), target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif (given := context.config.attributes.get("connection")) is not None:
    run(given)
else:
    asyncio.run(run_by_command())
