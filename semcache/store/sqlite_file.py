"""SQLite files: opened so that nobody else reads them, locked for one process, removed with all they leave."""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from semcache.errors import StoreError

VERSION = 1  # of the table and of the encoding of what is in it
DAMAGED = ".damaged"  # what a file is renamed to that is no database
_COMPANIONS = ("-wal", "-shm")
_WAL_BYTES = 4 * 1024 * 1024  # to which the log is cut when it was longer
_TABLE = "CREATE TABLE IF NOT EXISTS entries (number INTEGER PRIMARY KEY, record BLOB, checksum INTEGER)"
_SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA secure_delete = ON",  # what is deleted is overwritten with zeros
    f"PRAGMA journal_size_limit = {_WAL_BYTES}",
)


def connect(path: Path) -> sqlite3.Connection:
    """Raises OSError and sqlite3.Error. A new file has its table; one of another version is left as it is."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    path.chmod(0o600)  # SQLite gives its log the same mode
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.text_factory = bytes  # of a damaged row, not even text can be relied on
        for setting in _SETTINGS:
            database.execute(setting).fetchall()
        if pragma(database, "user_version") in (0, VERSION):
            database.execute(_TABLE)
            database.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        database.close()
        raise
    return database


def pragma(database: sqlite3.Connection, name: str) -> int:
    return int(database.execute(f"PRAGMA {name}").fetchone()[0])


@contextlib.contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a full disk has rolled it back already
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def lock(path: Path) -> int:
    """A file descriptor that holds the lock until it is closed. Raises OSError; StoreError when another holds it."""
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreError(f"{path} is in use by another process") from error
    return descriptor


def unlink(path: Path) -> None:
    """The file and what belongs to it, as far as it exists. Raises OSError."""
    for name in (path.name, *(path.name + companion for companion in _COMPANIONS)):
        path.with_name(name).unlink(missing_ok=True)
