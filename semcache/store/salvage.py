"""Reads what is left of a table with broken pages: row after row where many at once can't be read."""

import sqlite3
from collections.abc import Iterator

MAX_FAILED_READS = 20_000  # in a row; then the rest counts as lost
FAILURES_TO_WIDEN = 64  # after so many in a row, one row number more is skipped at a time
_NEXT = "SELECT number, record, checksum FROM entries WHERE number > ? ORDER BY number LIMIT ?"

Row = tuple[int, bytes, int]  # its number, the encoded record, its checksum


def readable_rows(database: sqlite3.Connection, size: int) -> Iterator[list[Row]]:
    """The rows that can be read, in order, at most `size` at a time."""
    number, limit, num_failed = -1, size, 0
    while num_failed < MAX_FAILED_READS:
        try:
            rows: list[Row] = database.execute(_NEXT, (number, limit)).fetchall()
        except sqlite3.DatabaseError:
            if limit > 1:
                limit //= 2
            else:
                num_failed += 1
                number += 1 + num_failed // FAILURES_TO_WIDEN
            continue
        if not rows:
            return
        yield rows
        number, limit, num_failed = rows[-1][0], min(size, limit * 2), 0
