"""Rows that are written in bulk hold what SQLAlchemy's own types would have written."""

import asyncio
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import pytest
from sqlalchemy import insert, text

from gateway.ledger.records import AttemptRecord, DecisionRecord, RequestRecord
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.store.errors import RowRefused
from gateway.store.ledger_tables import requests
from gateway.wire.usage import Usage

pytestmark = pytest.mark.anyio
HALF: Any = numpy.float32(0.5)  # as similarities are
USAGE = Usage(
    prompt_tokens=3, completion_tokens=2**40, cached_tokens=1, reasoning_tokens=1, compute_us=7, estimated=True
)


def asked(name: str, at: float) -> RequestRecord:
    attempt = AttemptRecord(
        id=f"call of {name}", request_id=name, index=1, model="m", provider="p", upstream_model="m\0", started_at=at
    )
    decision = DecisionRecord(
        request_id=name,
        tier="small",
        reason="score",
        confidence=HALF,
        signals=b'{"a":"\xff"}',
        embedding=b"\0",
    )
    return RequestRecord(
        id=name,
        tenant_id="t",
        key_id="k",
        endpoint="chat.completions",
        requested_model="m",
        started_at=at,
        stream=True,
        similarity=HALF,
        usage=USAGE,
        latency_ms=1.5,
        user="a\0b",
        attempts=(attempt,),
        decision=decision,
    )


@pytest.mark.parametrize("at", [0.0, 1.5, 1764545660.123456, 1764545660.999999, 4102444800.0])
async def test_values_are_those_of_the_types(database_url: str, at: float) -> None:
    database = Database(database_url)
    await database.open()
    await insert_entries(database, [asked("bulk", at)])
    record = asked("typed", at)
    values = {column.name: getattr(record, column.name, None) for column in requests.columns}
    values |= {name: getattr(USAGE, name) for name in USAGE.__struct_fields__}
    values |= {"started_at": datetime.fromtimestamp(at, UTC), "similarity": 0.5, "user": "a\ufffdb"}
    async with database.write() as connection:
        await connection.execute(insert(requests).values(values))
    async with database.read() as connection:
        rows = [dict(row) for row in (await connection.execute(text("SELECT * FROM requests ORDER BY id"))).mappings()]
        attempt = (await connection.execute(text("SELECT * FROM attempts"))).mappings().one()
        decision = (await connection.execute(text("SELECT * FROM decisions"))).mappings().one()
    await database.aclose()
    assert [row.pop("id") for row in rows] == ["bulk", "typed"]
    assert rows[0] == rows[1]
    assert {name: type(value) for name, value in rows[0].items()} == {name: type(rows[1][name]) for name in rows[1]}
    assert (attempt["attempt"], attempt["upstream_model"], attempt["started_at"]) == (
        1,
        "m\ufffd",
        rows[1]["started_at"],
    )
    assert (decision["confidence"], decision["signals"], decision["embedding"]) == (0.5, '{"a":"\ufffd"}', b"\0")


async def test_a_time_that_no_calendar_has_writes_nothing(database_url: str) -> None:
    database = Database(database_url)
    await database.open()
    with pytest.raises(RowRefused):
        await insert_entries(database, [asked("good", 1.0), asked("bad", 1e300)])
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM requests")) == 0
    await database.aclose()


async def test_who_stops_waiting_for_a_locked_file_loses_nothing(tmp_path: Path) -> None:
    """The transaction ends in its thread, `aclose` waits for it, and writing the same again changes nothing."""
    file = tmp_path / "books.db"
    database = Database(f"sqlite:///{file}")
    await database.open()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(insert_entries(database, [asked("held up", 1.0)]))
    done, _ = await asyncio.wait([writing], timeout=0.05)
    assert not done
    writing.cancel()
    await asyncio.wait([writing])
    other.execute("COMMIT")
    await database.aclose()
    again = Database(f"sqlite:///{file}")
    await again.open()
    await insert_entries(again, [asked("held up", 1.0), asked("new", 2.0)])
    await again.aclose()
    assert other.execute("SELECT id FROM requests ORDER BY id").fetchall() == [("held up",), ("new",)]
    other.close()
