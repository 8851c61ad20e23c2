"""The SQLite file in which entries outlive the process. Knows rows and damage, nothing of why an entry comes or goes.

Blocking, and for one thread. Whatever happens to the file costs entries and nothing else: a row that can't be read is
dropped, a file with broken pages is copied as far as it can be read, and one that is no database is moved aside.
"""

import contextlib
import logging
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from semcache.errors import StoreError
from semcache.store.record import Record, decode_record
from semcache.store.salvage import Row, readable_rows
from semcache.store.sqlite_file import DAMAGED, VERSION, connect, lock, pragma, transaction, unlink

log = logging.getLogger(__name__)
Result = TypeVar("Result")

CHUNK = 10_000  # rows at a time: enough for an index to be filled in few calls
MIN_PAGES_TO_SHRINK = 256
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PUT = "INSERT OR REPLACE INTO entries (number, record, checksum) VALUES (?, ?, ?)"
_DELETE = "DELETE FROM entries WHERE number = ?"
_NEXT = "SELECT number, record, checksum FROM entries WHERE number > ? ORDER BY number LIMIT ?"


class CacheFile:
    """`open` before use. Every method raises StoreError: the disk is full, or the file can't be reached."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._database: sqlite3.Connection | None = None

    def open(self) -> None:
        """Raises StoreError also when another process holds the file."""
        with self._translated():
            self._lock = lock(self.path)
            try:
                self._open_database()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._disconnect()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def discard(self) -> None:
        """Removes the file and what was moved aside of it. Raises StoreError when another process holds it."""
        aside = self.path.with_name(self.path.name + DAMAGED)
        if not self.path.exists() and not aside.exists():
            return
        with self._translated():
            self._lock = lock(self.path)
            try:
                unlink(self.path)
                unlink(aside)
            finally:
                self.close()

    def read(self) -> Iterator[list[tuple[int, Record]]]:
        """The entries with their numbers, in the numbers' order. What can't be read is taken out of the file."""
        last = -1
        while rows := self._repairing(partial(self._rows_after, last)):
            last = rows[-1][0]
            records = [(row[0], record) for row in rows if (record := _sound(row)) is not None]
            if len(records) < len(rows):
                log.error("%s: %d of its entries are damaged and left out", self.path, len(rows) - len(records))
                alive = {number for number, _ in records}
                self.write((), [number for number, _, _ in rows if number not in alive])
            if records:
                yield records

    def write(self, records: Iterable[tuple[int, bytes]], forgotten: Iterable[int]) -> None:
        """Stores records under their numbers, and overwrites the bytes of forgotten ones with zeros."""
        rows = [(number, raw, _checksum(number, raw)) for number, raw in records]
        numbers = [(number,) for number in forgotten]
        self._repairing(lambda: self._write(rows, numbers))

    def scrub(self) -> None:
        """Leaves nothing in SQLite's log of what was forgotten."""
        self._repairing(lambda: self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())

    def compact(self) -> None:
        """Writes the file anew: no page, also none half used, holds a byte of what was forgotten."""
        self._repairing(lambda: self._connection.execute("VACUUM"))
        self.scrub()

    def wipe(self) -> None:
        """Begins an empty file; needs no room on the disk."""
        with self._translated():
            self._disconnect()
            unlink(self.path)
            self._database = connect(self.path)

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._database is None:  # a repair that failed half-way
            self._database = connect(self.path)
        return self._database

    def _open_database(self) -> None:
        try:
            self._database = connect(self.path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            aside = self.path.with_name(self.path.name + DAMAGED)
            log.error("%s is no database (%s): it is moved to %s and begun anew", self.path, error, aside)
            self.path.replace(aside)
            self.wipe()
        if pragma(self._connection, "user_version") != VERSION:
            log.warning("%s was written by another version: it is begun anew", self.path)
            self.wipe()

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _rows_after(self, number: int) -> list[Row]:
        return self._connection.execute(_NEXT, (number, CHUNK)).fetchall()

    def _write(self, rows: list[Row], numbers: list[tuple[int]]) -> None:
        with transaction(self._connection) as database:
            database.executemany(_DELETE, numbers)
            database.executemany(_PUT, rows)
        if numbers and self._is_mostly_dead():
            self._connection.execute("VACUUM")

    def _is_mostly_dead(self) -> bool:
        pages = pragma(self._connection, "page_count")
        return pages > MIN_PAGES_TO_SHRINK and pragma(self._connection, "freelist_count") * 2 > pages

    def _repairing(self, work: Callable[[], Result]) -> Result:
        """The work's result; where it comes upon broken pages, that of a second attempt on what is left of the file."""
        with self._translated():
            try:
                return work()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                log.error("%s is damaged (%s): what can be read of it is kept", self.path, error)
            self._salvage()
            return work()

    def _salvage(self) -> None:
        """Copies every row that can be read into a new file, which takes the old one's place."""
        fresh_path = self.path.with_name(f"{self.path.name}.new")
        unlink(fresh_path)
        with contextlib.closing(connect(fresh_path)) as fresh:
            for rows in readable_rows(self._connection, CHUNK):
                with transaction(fresh):
                    fresh.executemany(_PUT, rows)
        self._disconnect()
        unlink(self.path)
        fresh_path.replace(self.path)
        self._database = connect(self.path)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self.path}: {error}") from error


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE  # the upper bits are details


def _checksum(number: int, raw: bytes) -> int:
    """CRC-32: a slip of the disk is noticed, nobody's malice."""
    return zlib.crc32(raw, number & 0xFFFFFFFF)


def _sound(row: Row) -> Record | None:
    """The record, if the row is as it was written and can be decoded by this version."""
    number, raw, checksum = row
    if not isinstance(raw, bytes) or _checksum(number, raw) != checksum:
        return None
    try:
        return decode_record(raw)
    except msgspec.MsgspecError:
        return None
