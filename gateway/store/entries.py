"""Writes settled requests into SQL, many at once and never twice: a row whose id is there already is left as it is."""

from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import Dialect

from gateway.ledger.records import RequestRecord
from gateway.store.bulk import NewRows
from gateway.store.database import Database
from gateway.store.errors import RowRefused
from gateway.store.ledger_tables import attempts, decisions, requests
from gateway.wire.usage import Usage

_USAGE = {name: f"usage.{name}" for name in Usage.__struct_fields__}


async def insert_entries(database: Database, records: Sequence[RequestRecord]) -> None:
    """One transaction. Raises StoreUnavailable or RowRefused; nothing is written then."""
    batches: tuple[Sequence[object], ...] = (
        records,
        [attempt for record in records for attempt in record.attempts],
        [record.decision for record in records if record.decision is not None],
    )
    try:
        tables = _tables(database.sql)
        statements = [(new.sql, new.rows(found)) for new, found in zip(tables, batches, strict=True) if found]
    except (ValueError, OverflowError, OSError) as error:  # a time that no calendar has
        raise RowRefused(str(error)) from error
    await database.execute(statements)


@lru_cache(maxsize=4)
def _tables(dialect: Dialect) -> tuple[NewRows, NewRows, NewRows]:
    """Attempts and decisions refer to requests, which come first."""
    return (
        NewRows(requests, dialect, _USAGE),
        NewRows(attempts, dialect, _USAGE | {"attempt": "index"}),
        NewRows(decisions, dialect, {"signals": "signals_text"}),
    )
