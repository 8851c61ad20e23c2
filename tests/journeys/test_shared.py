"""Two gateways that share PostgreSQL and Redis: one cache, one set of limits, one ledger; and life without Redis."""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.conftest import RedisServer
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.probes import PROBE
from tests.support.server import Gateway, two_gateways

CONFIG = (
    """
[store]
database_url = "{database}"
redis_url = "{redis}"
[cache]
semantic = false
[[provider]]
name = "upstream"
base_url = "{upstream}"
"""
    + PROBE
)


@pytest.fixture
def pair(
    upstream: MisbehavingUpstream, postgres_url: str, redis_server: RedisServer, tmp_path: Path
) -> Iterator[tuple[Gateway, Gateway]]:
    config = CONFIG.format(database=postgres_url, redis=redis_server.url, upstream=upstream.base_url)
    with two_gateways(config, tmp_path) as both:
        yield both


def body(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "probe/ok", "messages": [{"role": "user", "content": text}]} | fields


def ready(gateway: Gateway) -> dict[str, str]:
    found: dict[str, str] = json.loads(gateway.get("/health/ready")[2])
    return found


def test_a_key_made_at_one_works_at_the_other_and_so_do_answers(
    pair: tuple[Gateway, Gateway], redis_server: RedisServer, postgres_url: str
) -> None:
    first, second = pair
    key = first.key("acme")
    time.sleep(1.0)
    text = str(uuid.uuid4())
    outcomes = [gateway.post("/v1/chat/completions", body(text), key)[1]["x-tollhouse-cache"] for gateway in pair]
    assert outcomes == ["miss", "hit-exact"]

    redis_server.stop()
    for gateway in pair:  # each on its own now, and neither slow nor silent about it
        started = time.monotonic()
        status, headers, _ = gateway.post("/v1/chat/completions", body(str(uuid.uuid4())), key)
        assert (status, headers["x-tollhouse-cache"]) == (200, "miss")
        assert time.monotonic() - started < 5
    redis_server.start()
    until = time.monotonic() + 20
    text = str(uuid.uuid4())
    while second.post("/v1/chat/completions", body(text), key)[1]["x-tollhouse-cache"] != "hit-exact":
        first.post("/v1/chat/completions", body(text, user=str(time.monotonic())), key)
        assert time.monotonic() < until, "the shared cache does not come back"
        text = str(uuid.uuid4())
        first.post("/v1/chat/completions", body(text), key)

    for gateway in pair:
        gateway.stop()  # drains
    rows = asyncio.run(_rows(postgres_url, "SELECT cache, count(*) FROM requests GROUP BY cache"))
    assert rows["hit-exact"] >= 2
    assert rows["miss"] >= 3


def test_fifty_at_once_against_a_limit_of_three_admit_three(pair: tuple[Gateway, Gateway]) -> None:
    first, _ = pair
    first.tollhouse("tenants", "add", "small", "--requests-per-minute", "3")
    key = first.key("small", create=False)
    time.sleep(1.0)
    with ThreadPoolExecutor(50) as pool:
        replies = list(
            pool.map(
                lambda index: pair[index % 2].post("/v1/chat/completions", body(str(uuid.uuid4())), key), range(50)
            )
        )
    statuses = [status for status, _, _ in replies]
    assert statuses.count(200) == 3
    assert statuses.count(429) == 47
    refused = next(reply for reply in replies if reply[0] == 429)
    assert int(refused[1]["retry-after"]) >= 1
    assert refused[1]["x-ratelimit-limit-requests"] == "3"
    assert json.loads(refused[2])["error"]["code"] == "rate_limit_exceeded"


async def _rows(url: str, sql: str) -> dict[str, int]:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return {row[0]: row[1] for row in await connection.fetch(sql)}
    finally:
        await connection.close()


def test_an_erased_tenants_answers_are_gone_everywhere(
    pair: tuple[Gateway, Gateway], redis_server: RedisServer
) -> None:
    first, second = pair
    keys = {name: first.key(name) for name in ("acme", "other")}
    stored = b"KEYS tollhouse:exact:*"
    for key in keys.values():
        assert first.post("/v1/chat/completions", body("the same"), key)[1]["x-tollhouse-cache"] == "miss"
    assert redis_server.ask(stored).startswith(b"*2\r\n")
    assert "erased acme" in first.tollhouse("tenants", "erase", "acme", "--yes")
    until = time.monotonic() + 10
    while not redis_server.ask(stored).startswith(b"*1\r\n"):
        assert time.monotonic() < until, redis_server.ask(stored)
        time.sleep(0.05)
    for gateway in pair:
        asked = gateway.post("/v1/chat/completions", body("the same"), keys["other"])
        assert asked[1]["x-tollhouse-cache"] == "hit-exact"
    assert second.post("/v1/chat/completions", body("the same"), keys["acme"])[1]["x-tollhouse-cache"] == "miss"
