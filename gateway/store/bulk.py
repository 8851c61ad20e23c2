"""Many records into one table at once, column by column: what Python does for each row costs more than the row.

Written are the values that SQLAlchemy's types would have written.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any

from sqlalchemy import Boolean, Dialect, Double, Table, Text
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from gateway.store.insert import insert_into
from gateway.store.tables import UtcDateTime

Values = Sequence[Any]  # of one column
Row = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1)  # a time that knows its zone takes three times as long to write
_seconds = partial(timedelta, 0)
_PLAIN_REALS = {float, type(None)}


class NewRows:
    """How records become rows of `table`; one whose key is there already is left as it is.

    A column takes the record's field of its own name, or the one that `paths` names. Times are seconds since the epoch.
    """

    def __init__(self, table: Table, dialect: Dialect, paths: Mapping[str, str]) -> None:
        compiled = insert_into(table, dialect).on_conflict_do_nothing().compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        assert compiled.positiontup is not None, "both drivers number their parameters"
        names = compiled.positiontup
        self.sql = str(compiled)
        self._fields = attrgetter(*(paths.get(name, name) for name in names))
        kinds = [table.c[name].type for name in names]
        self._converters = [(index, found) for index, kind in enumerate(kinds) if (found := _to_driver(kind, dialect))]

    def rows(self, records: Sequence[object]) -> list[Row]:
        """As the driver takes them. Raises ValueError, OverflowError or OSError for a time that no calendar has."""
        columns: list[Values] = list(zip(*map(self._fields, records), strict=True))
        for index, convert in self._converters:
            columns[index] = convert(columns[index])
        return list(zip(*columns, strict=True))


def _to_driver(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Values], Values] | None:
    if isinstance(kind, UtcDateTime):
        return _times if dialect.name == "postgresql" else _written_times
    if isinstance(kind, Text):
        return _without_nul
    if isinstance(kind, Double):
        return _reals
    return _numbers if isinstance(kind, Boolean) and dialect.name == "sqlite" else None


def _times(values: Values) -> Values:
    return [datetime.fromtimestamp(value, UTC) for value in values]


def _written_times(values: Values) -> Values:
    """SQLite has no type for them: as SQLAlchemy writes them, in UTC without saying so."""
    return [(_EPOCH + since).isoformat(" ", "microseconds") for since in map(_seconds, values)]


def _without_nul(values: Values) -> Values:
    """PostgreSQL stores no NUL; clients may send one (in `user`, say), and their money must be booked all the same."""
    if "\0" not in "".join(filter(None, values)):
        return values
    return [value and value.replace("\0", "\ufffd") for value in values]


def _reals(values: Values) -> Values:
    """A driver takes no number of numpy's."""
    if {*map(type, values)} <= _PLAIN_REALS:
        return values
    return [None if value is None else float(value) for value in values]


def _numbers(values: Values) -> Values:
    return [*map(int, values)]
