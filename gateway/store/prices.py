"""Rows of the price table. They are only ever added: what a request cost last month must not change today."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from sqlalchemy import Row, insert, select

from gateway.ids import new_id
from gateway.store.database import Database, Transaction
from gateway.store.tables import prices
from gateway.store.versions import bump

Source = Literal["config", "operator"]


class PriceRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's tokens cost from `valid_from` on, in nano-dollars per million tokens."""

    model: str
    valid_from: datetime
    input_nanousd_per_mtok: int
    output_nanousd_per_mtok: int
    cached_input_nanousd_per_mtok: int
    source: Source

    @property
    def amounts(self) -> tuple[int, int, int]:
        return self.input_nanousd_per_mtok, self.output_nanousd_per_mtok, self.cached_input_nanousd_per_mtok


async def select_prices(database: Database) -> list[PriceRow]:
    """All of history, oldest first."""
    async with database.read() as connection:
        rows = await connection.execute(select(prices).order_by(prices.c.valid_from, prices.c.id))
        return [_price(row) for row in rows]


async def select_price(transaction: Transaction, model: str, at: datetime) -> PriceRow | None:
    """The one in force at a time, by this very name."""
    query = (
        select(prices).where(prices.c.model == model, prices.c.valid_from <= at).order_by(prices.c.valid_from.desc())
    )
    row = (await transaction.execute(query.limit(1))).first()
    return _price(row) if row is not None else None


async def insert_price(transaction: Transaction, row: PriceRow) -> None:
    """Raises DuplicateRow when the model has a price from this very moment on."""
    await transaction.execute(insert(prices).values(id=new_id(), **msgspec.structs.asdict(row)))
    await bump(transaction, "prices")


async def seed_prices(database: Database, wanted: Iterable[tuple[str, tuple[int, int, int]]]) -> list[str]:
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
        last = {
            row.model: (row.input_nanousd_per_mtok, row.output_nanousd_per_mtok, row.cached_input_nanousd_per_mtok)
            for row in rows
        }
        changed = [(model, amounts) for model, amounts in wanted if last.get(model) != amounts]
        if changed:
            now = datetime.now(UTC)
            await connection.execute(
                insert(prices),
                [
                    {
                        "id": new_id(),
                        "model": model,
                        "valid_from": now,
                        "input_nanousd_per_mtok": amounts[0],
                        "output_nanousd_per_mtok": amounts[1],
                        "cached_input_nanousd_per_mtok": amounts[2],
                        "source": "config",
                    }
                    for model, amounts in changed
                ],
            )
            await bump(connection, "prices")
        return [model for model, _ in changed]


def _price(row: Row[Any]) -> PriceRow:
    return PriceRow(**{name: getattr(row, name) for name in PriceRow.__struct_fields__})
