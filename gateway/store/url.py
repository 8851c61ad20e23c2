"""Database URLs: the shorthand that people write, turned into what SQLAlchemy wants, or a clear refusal."""

import importlib.util
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from gateway.store.errors import StoreConfigError

_DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg", "postgres": "asyncpg"}
_EXTRAS = {"asyncpg": "postgres"}


def sqlite_url(home: Path) -> str:
    """The database of a gateway that names none."""
    return f"sqlite+aiosqlite:///{home / 'tollhouse.db'}"


def parse_url(text: str) -> URL:
    """Raises StoreConfigError; its message never holds the password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise StoreConfigError(
            "store.database_url is not a database URL; write postgresql://user:password@host/database or sqlite:///path"
        ) from error
    backend, _, driver = url.drivername.partition("+")
    if backend not in _DRIVERS:
        raise StoreConfigError(f"store.database_url: {backend!r} is not supported; use postgresql or sqlite")
    wanted = _DRIVERS[backend]
    if driver not in ("", wanted):
        raise StoreConfigError(f"store.database_url: the driver {driver!r} is not supported; use {backend}+{wanted}")
    if importlib.util.find_spec(wanted) is None:
        extra = _EXTRAS.get(wanted)
        fix = f"pip install 'tollhouse[{extra}]'" if extra else f"pip install {wanted}"
        raise StoreConfigError(f"store.database_url needs {wanted}, which is not installed: {fix}")
    return url.set(drivername=f"{'postgresql' if backend == 'postgres' else backend}+{wanted}")
