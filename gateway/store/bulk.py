"""Many rows into one table at once, as plain tuples: what SQLAlchemy does for each row costs more than the row."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Dialect, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.compiler import SQLCompiler

Values = dict[str, Any]


class NewRows:
    """Inserts into `table`, for rows with these columns; one whose key is there already is left as it is."""

    def __init__(self, table: Table, names: tuple[str, ...], dialect: Dialect) -> None:
        insert = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
        compiled = insert(table).on_conflict_do_nothing().compile(dialect=dialect, column_keys=list(names))
        assert isinstance(compiled, SQLCompiler)
        assert compiled.positiontup is not None, "both drivers number their parameters"
        self._sql = str(compiled)
        self._in_order = itemgetter(*compiled.positiontup)
        self._to_driver: dict[str, Callable[[Any], Any]] = {
            name: convert
            for name in names
            if (convert := table.c[name].type.dialect_impl(dialect).bind_processor(dialect)) is not None
        }

    async def insert(self, connection: AsyncConnection, rows: Sequence[Values]) -> None:
        """The rows are changed: their values become the driver's."""
        for row in rows:
            for name, convert in self._to_driver.items():
                row[name] = convert(row[name])
        await connection.exec_driver_sql(self._sql, [self._in_order(row) for row in rows])


_known: dict[tuple[Table, tuple[str, ...], str], NewRows] = {}


async def insert_new(connection: AsyncConnection, table: Table, rows: Sequence[Values]) -> None:
    """All rows have the same columns. None at all is fine."""
    if not rows:
        return
    names, dialect = tuple(rows[0]), connection.dialect
    key = (table, names, dialect.name)
    if key not in _known:
        _known[key] = NewRows(table, names, dialect)
    await _known[key].insert(connection, rows)
