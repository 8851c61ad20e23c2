"""What the books and the gate cost a request: authentication, limits, journal, and how fast SQL follows.

python benchmarks/books.py [--redis redis://...] [--postgres postgresql://...]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gateway.config import ModelConfig
from gateway.ids import new_id
from gateway.ledger.entries import encode_opened, encode_settled
from gateway.ledger.journal import Journal
from gateway.ledger.ledger import Ledger
from gateway.ledger.prices import PriceBook
from gateway.ledger.records import AttemptRecord, DecisionRecord, RequestRecord
from gateway.ledger.savings import compare
from gateway.ledger.writer import BATCH
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.store.url import sqlite_url
from gateway.tenants import registry
from gateway.tenants.auth import Authenticator
from gateway.tenants.limits import Limiter
from gateway.tenants.types import Limits
from gateway.wire.usage import Usage

USAGE = Usage(prompt_tokens=812, completion_tokens=230, cached_tokens=512)


def record() -> RequestRecord:
    """As large as real ones are: one attempt, a decision with an embedding of 384 halves."""
    identifier = new_id()
    attempt = AttemptRecord(
        id=new_id(), request_id=identifier, index=0, model="gpt-4o-mini", provider="openai",
        upstream_model="gpt-4o-mini-2024-07-18", started_at=time.time(), usage=USAGE, cost_nanousd=221_400,
        http_status=200, ttft_ms=312.0, latency_ms=1890.5,
    )  # fmt: skip
    decision = DecisionRecord(
        request_id=identifier, tier="small", reason="task closed_qa at 0.83", confidence=0.83, task="closed_qa",
        signals=b'{"num_tokens": 812, "num_turns": 3, "has_code": false, "language": "en"}', embedding=bytes(768),
    )  # fmt: skip
    return RequestRecord(
        id=identifier, tenant_id=new_id(), key_id=new_id(), endpoint="chat.completions", requested_model="auto",
        started_at=time.time(), model="gpt-4o-mini", provider="openai", tier="small", stream=True, cache="miss",
        cache_reason="nearest 0.81 below 0.95", similarity=0.81, route_reason="task closed_qa at 0.83", usage=USAGE,
        cost_nanousd=221_400, baseline_model="gpt-4o", baseline_cost_nanousd=3_690_000,
        saved_by_routing_nanousd=3_468_600, ttft_ms=313.0, latency_ms=1891.0, config_hash="0123456789abcdef",
        attempts=(attempt,), decision=decision,
    )  # fmt: skip


def show(what: str, microseconds: list[float], unit: str = "µs") -> None:
    ordered = sorted(microseconds)
    p99 = ordered[int(len(ordered) * 0.99)]
    print(f"{what:<58}{statistics.median(ordered):>10.2f}{p99:>10.2f} {unit}")


def measure(what: str, work: Callable[[], object], num_rounds: int = 200, num_calls: int = 100) -> None:
    times = []
    for _ in range(num_rounds):
        started = time.perf_counter_ns()
        for _ in range(num_calls):
            work()
        times.append((time.perf_counter_ns() - started) / num_calls / 1000)
    show(what, times)


async def gate(database: Database) -> None:
    await registry.create_tenant(database, "acme")
    key = await registry.create_key(database, "acme")
    for number in range(99):
        await registry.create_key(database, "acme", f"k{number}")
    authenticator = Authenticator(database)
    await authenticator.start()
    header = f"Bearer {key.secret}"
    principal = authenticator.authenticate(header)
    measure("authenticate", lambda: authenticator.authenticate(header))
    limited = Limiter(Limits(requests_per_minute=10**9, tokens_per_minute=10**12, concurrent_requests=10**6))
    times = []
    for _ in range(5000):
        started = time.perf_counter_ns()
        ticket = await limited.admit(principal)
        await ticket.reserve(1000)
        await ticket.settle(700)
        times.append((time.perf_counter_ns() - started) / 1000)
    show("admit + reserve + settle, three limits in this process", times)
    await authenticator.aclose()


async def shared_limits(redis_url: str) -> None:
    from gateway.tenants.types import Key, Principal, Tenant

    tenant = Tenant(id=new_id(), name="acme")
    principal = Principal(tenant=tenant, key=Key(id="k", tenant_id=tenant.id, name="k", prefix="sk-th-abcd"))
    limiter = Limiter(Limits(requests_per_minute=10**9, tokens_per_minute=10**12, concurrent_requests=10**6), redis_url)
    times = []
    for _ in range(2000):
        started = time.perf_counter_ns()
        ticket = await limiter.admit(principal)
        await ticket.reserve(1000)
        await ticket.settle(700)
        times.append((time.perf_counter_ns() - started) / 1000)
    show("admit + reserve + settle, three limits in Redis", times)
    await limiter.aclose()


def journal(folder: Path, fsync_ms: int) -> None:
    book = Journal(folder, fsync_ms)
    records = [record() for _ in range(20_000 if fsync_ms else 300)]
    opened, settled, released = [], [], []
    for each in records:
        started = time.perf_counter_ns()
        book.append_opened(each.id, encode_opened(each.attempts[0], each))
        middle = time.perf_counter_ns()
        hold = book.append_settled(each.id, encode_settled(each))
        end = time.perf_counter_ns()
        book.release(hold)
        opened.append((middle - started) / 1000)
        settled.append((end - middle) / 1000)
        released.append((time.perf_counter_ns() - end) / 1000)
    show(f"journal: attempt opened, fsync_ms = {fsync_ms}", opened)
    show(f"journal: settled, fsync_ms = {fsync_ms}", settled)
    show(f"journal: released, fsync_ms = {fsync_ms}", released)
    book.close()


async def money(database: Database) -> None:
    book = PriceBook(database)
    names = ("gpt-4o", "gpt-4o-mini")
    await book.start([ModelConfig(name=name, provider="p", input_usd_per_mtok=2.5) for name in names])
    measure("cost of one usage", lambda: book.cost_nanousd("gpt-4o", USAGE))
    measure(
        "cost and savings",
        lambda: compare(book, model="gpt-4o-mini", usage=USAGE, baseline_model="gpt-4o", hit=False),
    )
    await book.aclose()


async def drain(database: Database, home: Path, label: str) -> None:
    records = [record() for _ in range(10_000)]
    started, busy = time.perf_counter(), time.process_time()
    for start in range(0, len(records), BATCH):
        await insert_entries(database, records[start : start + BATCH])
    seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    rate = f"{len(records) / seconds:>10.0f} requests/s, {cpu / len(records) * 1e6:.0f} µs of CPU each"
    print(f"{f'SQL: {label}, batches of {BATCH}':<58}{rate}")
    ledger = Ledger(database, home)
    await ledger.start()
    records = [record() for _ in range(10_000)]
    times = []
    for index, each in enumerate(records):
        started_ns = time.perf_counter_ns()
        ledger.open_attempt(each.attempts[0], each)
        ledger.settle(each)
        times.append((time.perf_counter_ns() - started_ns) / 1000)
        if index % 20 == 0:
            await asyncio.sleep(0.005)
    show(f"ledger: open + settle while {label} drains", times)
    started = time.perf_counter()
    await ledger.drain()
    milliseconds = (time.perf_counter() - started) * 1000
    print(f"{f'ledger: the last of 10,000 is in {label} after':<58}{milliseconds:>10.0f} ms")
    await ledger.aclose()


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--redis", default="")
    arguments.add_argument("--postgres", default="")
    options = arguments.parse_args()
    print(f"{'':<58}{'p50':>10}{'p99':>10}")
    with tempfile.TemporaryDirectory(prefix="tollhouse-books-") as name:
        home = Path(name)
        database = Database(sqlite_url(home))
        await database.open()
        await gate(database)
        if options.redis:
            await shared_limits(options.redis)
        await money(database)
        for fsync_ms in (50, 0):
            journal(home / f"journal-{fsync_ms}", fsync_ms)
        await drain(database, home, "SQLite")
        await database.aclose()
        if options.postgres:
            database = Database(options.postgres)
            await database.open()
            await drain(database, home / "second", "PostgreSQL")
            await database.aclose()


asyncio.run(main())
