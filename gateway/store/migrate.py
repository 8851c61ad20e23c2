"""Runs the revisions of migrations/ from inside the program, on a connection that somebody else opened and locked."""

from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from gateway.store.errors import StoreConfigError


def migrations_folder() -> Path:
    """Found as a package, so that an installed Tollhouse needs no checkout."""
    spec = find_spec("migrations")
    if spec is None or spec.origin is None:
        raise StoreConfigError("the package `migrations` is missing from this installation")
    return Path(spec.origin).parent


def upgrade_to_head(connection: Connection) -> None:
    """Leaves Alembic out when there is nothing to do: its import costs a tenth of a second and megabytes for good."""
    if current_revision(connection) != newest_revision():
        _run(connection, "upgrade", "head")


def current_revision(connection: Connection) -> str | None:
    """Of the database; None when it has none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def newest_revision() -> str:
    """By the names of the files, which begin with their numbers."""
    files = (migrations_folder() / "versions").glob("[0-9]*_*.py")
    return max(file.name.partition("_")[0] for file in files)


def downgrade_to(connection: Connection, revision: str) -> None:
    _run(connection, "downgrade", revision)


def _run(connection: Connection, step: str, revision: str) -> None:
    from alembic import command  # a tenth of a second, paid by who needs it
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        getattr(command, step)(config, revision)
    except CommandError as error:
        if "Can't locate revision" in str(error):
            raise StoreConfigError(f"the database was made by a newer Tollhouse than this one: {error}") from error
        raise StoreConfigError(f"the database can't be migrated: {error}") from error
