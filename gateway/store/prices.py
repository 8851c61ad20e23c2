"""Rows of the price table. They are only ever added: what a request cost last month must not change today."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from sqlalchemy import insert, select

from gateway.ids import new_id
from gateway.ledger.price import Price
from gateway.store.database import Database, Transaction
from gateway.store.ledger_tables import prices
from gateway.store.versions import bump

Source = Literal["config", "operator", "import"]
_COLUMNS = {
    "input": "input_nanousd_per_mtok",
    "output": "output_nanousd_per_mtok",
    "cached_input": "cached_input_nanousd_per_mtok",
    "cache_write_input": "cache_write_input_nanousd_per_mtok",
    "reasoning_output": "reasoning_output_nanousd_per_mtok",
    "hour": "nanousd_per_hour",
}


class PriceRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a model costs from `valid_from` on, and who says so."""

    model: str
    valid_from: datetime
    price: Price
    source: Source


async def select_prices(database: Database) -> list[PriceRow]:
    """All of history, oldest first."""
    async with database.read() as connection:
        rows = await connection.execute(select(prices).order_by(prices.c.valid_from, prices.c.id))
        return [_row(row) for row in rows]


async def select_price(transaction: Transaction, model: str, at: datetime) -> PriceRow | None:
    """The one in force at a time, by this very name."""
    query = (
        select(prices).where(prices.c.model == model, prices.c.valid_from <= at).order_by(prices.c.valid_from.desc())
    )
    row = (await transaction.execute(query.limit(1))).first()
    return _row(row) if row is not None else None


async def insert_prices(transaction: Transaction, rows: Sequence[PriceRow]) -> None:
    """Raises DuplicateRow when a model has a price from this very moment on."""
    await transaction.execute(insert(prices), [_values(row) for row in rows])
    await bump(transaction, "prices")


async def seed_prices(database: Database, wanted: Iterable[tuple[str, Price]]) -> list[str]:
    """Adds a row for each model whose price in the config is not the one that the config gave last time.

    So a row that an operator wrote later stays in force until the config itself changes. Returns the models changed.
    Reading and writing are one transaction that locks: two gateways that start at once write one row.
    """
    async with database.write() as connection:
        if database.dialect == "postgresql":
            await connection.exec_driver_sql("LOCK TABLE prices IN SHARE ROW EXCLUSIVE MODE")
        rows = await connection.execute(
            select(prices).where(prices.c.source == "config").order_by(prices.c.valid_from, prices.c.id)
        )
        last = {row.model: _price(row) for row in rows}
        now = datetime.now(UTC)
        changed = [
            PriceRow(model=model, valid_from=now, price=price, source="config")
            for model, price in wanted
            if last.get(model) != price
        ]
        if changed:
            await insert_prices(connection, changed)
        return [row.model for row in changed]


def _row(row: Any) -> PriceRow:
    return PriceRow(model=row.model, valid_from=row.valid_from, price=_price(row), source=row.source)


def _values(row: PriceRow) -> dict[str, Any]:
    amounts = {column: getattr(row.price, name) for name, column in _COLUMNS.items()}
    return {"id": new_id(), "model": row.model, "valid_from": row.valid_from, "source": row.source} | amounts


def _price(row: Any) -> Price:
    return Price(**{name: getattr(row, column) for name, column in _COLUMNS.items()})
