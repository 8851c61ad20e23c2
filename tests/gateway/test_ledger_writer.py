"""Every settled request is in SQL once: through outages, overflow, kill -9, and several writers of the same journal."""

import asyncio
import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from gateway.config import ModelConfig
from gateway.ids import new_id
from gateway.ledger import segment
from gateway.ledger.ledger import Ledger
from gateway.ledger.prices import PriceBook
from gateway.ledger.records import AttemptRecord, DecisionRecord, RequestRecord
from gateway.store.database import Database
from gateway.wire.usage import Usage


def attempt(request_id: str, index: int = 0, **fields: Any) -> AttemptRecord:
    usage = fields.pop("usage", Usage(prompt_tokens=100, completion_tokens=10))
    return AttemptRecord(
        id=new_id(), request_id=request_id, index=index, model="m", provider="p", upstream_model="u",
        started_at=time.time(), usage=usage, cost_nanousd=7, **fields,
    )  # fmt: skip


def request(attempts: tuple[AttemptRecord, ...] = (), **fields: Any) -> RequestRecord:
    identifier = fields.pop("id", attempts[0].request_id if attempts else new_id())
    return RequestRecord(
        id=identifier, tenant_id="t", key_id="k", endpoint="chat.completions", requested_model="auto",
        started_at=time.time(), attempts=attempts, cost_nanousd=sum(each.cost_nanousd for each in attempts), **fields,
    )  # fmt: skip


def one(**fields: Any) -> RequestRecord:
    return request((attempt(new_id()),), **fields)


async def rows(database: Database, query: str) -> list[Any]:
    async with database.read() as connection:
        return list((await connection.execute(text(query))).all())


async def count(database: Database, table: str = "requests") -> int:
    return int((await rows(database, f"SELECT COUNT(*) FROM {table}"))[0][0])


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.anyio
async def test_one_row_a_request_one_an_attempt_one_a_decision(database: Database, tmp_path: Path) -> None:
    ledger = Ledger(database, tmp_path)
    await ledger.start()
    identifier = new_id()
    tries = (
        attempt(identifier, 0, status="error", http_status=500, error_code="server_error", usage=Usage()),
        attempt(identifier, 1, http_status=200, ttft_ms=1.5),
    )
    usage = Usage(prompt_tokens=100, completion_tokens=10, cached_tokens=40, reasoning_tokens=5)
    decision = DecisionRecord(
        request_id=identifier, tier="small", reason="short", confidence=0.9, signals=b'{"length": 3}', embedding=b"\1\2"
    )
    record = request(
        tries, usage=usage, decision=decision, user="nul \0 byte", similarity=0.25, saved_by_routing_nanousd=-4
    )
    opening = request(id=identifier)
    for each in tries:
        ledger.open_attempt(each, opening)
    ledger.settle(record)
    await ledger.drain()
    (row,) = await rows(database, "SELECT * FROM requests")
    assert (row.id, row.cost_nanousd, row.saved_by_routing_nanousd) == (identifier, 14, -4)
    assert (row.prompt_tokens, row.cached_tokens, row.reasoning_tokens, row.estimated) == (100, 40, 5, False)
    assert row.user == "nul \ufffd byte"
    found = await rows(database, "SELECT * FROM attempts ORDER BY attempt")
    assert [(each.id, each.status, each.http_status) for each in found] == [
        (tries[0].id, "error", 500),
        (tries[1].id, "ok", 200),
    ]
    (learned,) = await rows(database, "SELECT * FROM decisions")
    assert (learned.request_id, json.loads(learned.signals), bytes(learned.embedding)) == (
        identifier, {"length": 3}, b"\1\2",
    )  # fmt: skip
    await ledger.aclose()
    assert list((tmp_path / "journal").iterdir()) == []  # nothing is needed any more


@pytest.mark.anyio
async def test_settling_twice_and_two_writers_give_one_row(database: Database, tmp_path: Path) -> None:
    ledger = Ledger(database, tmp_path / "one")
    await ledger.start()
    records = [one() for _ in range(50)]
    for record in records:
        ledger.settle(record)
        ledger.settle(record)
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # the same journal, for another gateway to recover
    other_database = Database(database._url.render_as_string(hide_password=False))
    other = Ledger(other_database, tmp_path / "two")
    await other.start()
    await asyncio.gather(ledger.drain(), other.drain())
    assert await count(database) == await count(database, "attempts") == 50
    await ledger.aclose()
    await other.aclose()
    await other_database.aclose()


@pytest.mark.anyio
async def test_the_database_may_go_and_come_back(
    postgres_server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tollhouse.ledger")
    database = Database(postgres_server.new_database())
    await database.open()
    ledger = Ledger(database, tmp_path, max_queue=30, segment_bytes=20_000)
    await ledger.start()
    for _ in range(10):
        ledger.settle(one())
    await ledger.drain()
    postgres_server.stop()
    started = time.perf_counter()
    for number in range(200):  # many times what memory may hold, over many segments
        record = one()
        ledger.open_attempt(record.attempts[0], record)
        ledger.settle(record)
        assert ledger.stats().num_queued <= 30
        if number % 20 == 0:
            await asyncio.sleep(0.01)
    assert time.perf_counter() - started < 5  # nobody waited
    await until(lambda: ledger.stats().database_error is not None)
    assert ledger.stats().overflowed
    assert ledger.stats().num_segments > 3
    postgres_server.start()
    await asyncio.wait_for(ledger.drain(), 20)
    assert await count(database) == await count(database, "attempts") == 210
    stats = ledger.stats()
    assert (stats.database_error, stats.overflowed, stats.num_queued, stats.num_segments) == (None, False, 0, 1)
    messages = [each.message for each in caplog.records if "database" in each.message]
    assert len(messages) == 2  # once when it goes, once when it is back
    await ledger.aclose()
    await database.aclose()


@pytest.mark.anyio
async def test_a_start_and_a_stop_while_the_database_is_away(postgres_server: Any, tmp_path: Path) -> None:
    database = Database(postgres_server.new_database())
    await database.open()
    postgres_server.stop()
    for _ in range(2):  # two lives without a database
        ledger = Ledger(database, tmp_path, max_queue=5)
        await ledger.start()
        for _ in range(20):
            ledger.settle(one())
        await ledger.aclose(timeout_s=0.2)
    postgres_server.start()
    ledger = Ledger(database, tmp_path)
    await ledger.start()
    await asyncio.wait_for(ledger.drain(), 20)
    assert await count(database) == 40
    await ledger.aclose()
    assert list((tmp_path / "journal").iterdir()) == []
    await database.aclose()


@pytest.mark.anyio
async def test_a_row_that_sql_refuses_is_put_aside_and_holds_up_nobody(database: Database, tmp_path: Path) -> None:
    ledger = Ledger(database, tmp_path)
    await ledger.start()
    bad = [one(latency_ms=1.0, usage=Usage(prompt_tokens=2**63)), one(config_hash="x" * 65, id="y" * 40)]
    for index in range(40):
        ledger.settle(one())
        if index in (3, 17):
            ledger.settle(bad.pop())
    ledger.settle(replace(one(), started_at=1e18))
    await ledger.drain()
    refused = [json.loads(line) for line in (tmp_path / "journal" / "refused.jsonl").read_bytes().splitlines()]
    assert ledger.stats().num_refused == len(refused) >= 2
    assert await count(database) == 43 - len(refused)
    await ledger.aclose()


KILLED = """
import asyncio, os, sys, time
from pathlib import Path
from test_ledger_writer import attempt, one, request
from gateway.ids import new_id
from gateway.ledger.ledger import Ledger
from gateway.store.database import Database

async def main():
    database = Database(sys.argv[1])
    await database.open()
    ledger = Ledger(database, Path(sys.argv[2]), int(sys.argv[3]), segment_bytes=30_000)
    await ledger.start()
    number = 0
    while True:
        record = one()
        ledger.open_attempt(record.attempts[0], request(id=record.id))
        if number % 10 == 7:
            os.write(1, f"opened {record.id}\\n".encode())
        else:
            ledger.settle(record)
            os.write(1, f"settled {record.id}\\n".encode())
        number += 1
        if number % 50 == 0:
            await asyncio.sleep(0.005)

asyncio.run(main())
"""


@pytest.mark.anyio
@pytest.mark.parametrize("fsync_ms", [0, 50])
async def test_kill_9_in_the_midst_of_writing(database_url: str, tmp_path: Path, fsync_ms: int) -> None:
    """What a client may have seen the end of is booked; what was under way is booked as lost."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, database_url, tmp_path, str(fsync_ms)], stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    said: list[bytes] = [process.stdout.readline() for _ in range(700)]
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().splitlines(keepends=True)
    process.wait()
    process.stdout.close()
    words = [line.decode().split() for line in said if line.endswith(b"\n")]
    settled = {identifier for what, identifier in words if what == "settled"}
    opened = {identifier for what, identifier in words if what == "opened"}
    assert len(settled) >= 600
    database = Database(database_url)
    await database.open()
    prices = PriceBook(database)
    await prices.start([ModelConfig(name="m", provider="p", input_usd_per_mtok=1.0)])
    ledger = Ledger(database, tmp_path, prices=prices)
    await ledger.start()
    await asyncio.wait_for(ledger.drain(), 30)
    booked = {row.id: row for row in await rows(database, "SELECT * FROM requests")}
    tries = await rows(database, "SELECT * FROM attempts")
    assert settled <= {identifier for identifier, row in booked.items() if row.status == "ok"}
    lost = {identifier for identifier, row in booked.items() if row.status == "lost"}
    assert opened <= lost
    assert len(booked) - len(settled) - len(opened) <= 1  # killed after its record and before its word
    assert len(tries) == len(booked)
    for row in (booked[identifier] for identifier in lost):
        assert (row.estimated, row.prompt_tokens, row.cost_nanousd) == (True, 100, 100_000)
    assert {(row.status, row.estimated) for row in tries if row.request_id in lost} == {("lost", True)}
    assert all(row.cost_nanousd == 100_000 for row in tries if row.request_id in lost)
    await ledger.aclose()
    assert list((tmp_path / "journal").iterdir()) == []
    await prices.aclose()
    await database.aclose()


@pytest.mark.anyio
async def test_two_gateways_share_a_home(database_url: str, tmp_path: Path) -> None:
    databases = [Database(database_url) for _ in range(2)]
    await asyncio.gather(*(each.open() for each in databases))
    ledgers = [Ledger(each, tmp_path) for each in databases]
    for ledger in ledgers:
        await ledger.start()
    for number in range(200):
        ledgers[number % 2].settle(one())
    await asyncio.gather(*(ledger.drain() for ledger in ledgers))
    assert await count(databases[0]) == 200
    assert [ledger.stats().num_written for ledger in ledgers] == [100, 100]  # neither took the other for dead
    for ledger, each in zip(ledgers, databases, strict=True):
        await ledger.aclose()
        await each.aclose()


@pytest.mark.anyio
async def test_a_journal_that_is_gone_bad_still_books(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(segment, "STEP", 512)  # about one record
    ledger = Ledger(database, tmp_path, fsync_ms=0, max_queue=10)
    await ledger.start()
    monkeypatch.setattr(segment.os, "posix_fallocate", full)
    for _ in range(50):
        ledger.settle(one())
    assert ledger.stats().journal_error == "No space left on device"
    await ledger.drain()
    assert await count(database) == 50  # from memory, which held more than its bound rather than lose a record
    monkeypatch.undo()
    await asyncio.sleep(0.25)
    ledger.settle(one())
    await ledger.drain()
    ledger.settle(one())
    assert ledger.stats().journal_error is None
    await ledger.aclose()
    assert await count(database) == 52


@pytest.mark.anyio
async def test_of_a_lost_request_each_call_is_booked_for_what_it_was(database: Database, tmp_path: Path) -> None:
    """A refusal that was known, a stream in the midst of it; and one that had not begun."""
    prices = PriceBook(database)
    await prices.start([ModelConfig(name="m", provider="p", input_usd_per_mtok=1.0, output_usd_per_mtok=2.0)])
    dead = Ledger(database, tmp_path / "dead")
    await dead.start()
    streamed, unborn = new_id(), attempt(new_id())
    refused = replace(attempt(streamed, status="error", http_status=500, usage=Usage()), cost_nanousd=0)
    running = attempt(streamed, 1, usage=Usage(prompt_tokens=100, estimated=True))
    dead.open_attempt(refused, request(id=streamed))
    dead.open_attempt(running, request(id=streamed, attempts=(refused,)))
    mark = dead.begin_stream(running.id)
    assert mark is not None
    mark.note(12)
    dead.open_attempt(unborn, request(id=unborn.request_id))
    shutil.copytree(tmp_path / "dead", tmp_path / "heir")  # as a kill would have left it
    heir = Ledger(database, tmp_path / "heir", prices=prices)
    await heir.start()
    await heir.drain()
    found = {row.id: row for row in await rows(database, "SELECT * FROM requests")}
    assert {row.status for row in found.values()} == {"lost"}
    assert [found[each].completion_tokens for each in (streamed, unborn.request_id)] == [12, 0]
    first, second = await rows(database, f"SELECT * FROM attempts WHERE request_id = '{streamed}' ORDER BY attempt")
    assert (first.status, first.cost_nanousd, first.estimated) == ("error", 0, False)
    assert (second.status, second.cost_nanousd, second.estimated) == ("lost", 100_000 + 24_000, True)
    assert found[streamed].cost_nanousd == second.cost_nanousd
    for ledger in (dead, heir):
        await ledger.aclose()
    await prices.aclose()
