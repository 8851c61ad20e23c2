"""Budgets through real gateways: two that share Redis admit exactly what there is money for, on every route.

Case F35 of the list of real complaints: a, concurrency; b, every route that can spend.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gateway.app import HANDLERS
from tests.conftest import RedisServer
from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.faults.misbehaviours import completion
from tests.support.probes import EMBED, PROBE
from tests.support.server import Gateway, two_gateways

CONFIG = (
    """
[store]
{store}
[cache]
semantic = false
[[provider]]
name = "upstream"
base_url = "{upstream}"
"""
    + PROBE
    + EMBED
)
MESSAGE = [{"role": "user", "content": "Where is the harbour?"}]
# Each route that takes a POST, with a request that would cost something; None where nothing is spent.
ROUTES: dict[str, dict[str, Any] | None] = {
    "/v1/chat/completions": {"model": "probe/ok", "messages": MESSAGE, "max_tokens": 10},
    "/v1/completions": {"model": "probe/ok", "prompt": "Where?", "max_tokens": 10},
    "/v1/embeddings": {"model": "embed/embedding", "input": "Where?"},
    "/v1/messages": {"model": "probe/ok", "messages": MESSAGE, "max_tokens": 10},
    "/v1/messages/count_tokens": None,
    "/v1/responses": {"model": "probe/ok", "input": "Where?", "max_output_tokens": 16},
    "/v1/responses/{response_id:str}/cancel": None,
    "/v1/files": None,
    "/v1/batches": None,  # its lines are requests of their own
    "/v1/batches/{batch_id:str}/cancel": None,
    "/tokenize": None,
}
# Passed through to a provider: priced by token, with a kind of model of their own.
PASSING = {"/v1/moderations", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations"}
PASSING |= {"/v1/images/generations"}


@pytest.fixture(scope="module")
def slow_upstream(upstream: MisbehavingUpstream) -> MisbehavingUpstream:
    async def slow(wire: Wire) -> None:
        await asyncio.sleep(1.0)  # so that all fifty are there at once
        await wire.json(completion("ok"))

    upstream.on("slowly", slow)
    return upstream


@pytest.fixture
def pair(
    slow_upstream: MisbehavingUpstream, postgres_url: str, redis_server: RedisServer, tmp_path: Path
) -> Iterator[tuple[Gateway, Gateway]]:
    store = f'database_url = "{postgres_url}"\nredis_url = "{redis_server.url}"'
    with two_gateways(CONFIG.format(store=store, upstream=slow_upstream.base_url), tmp_path) as both:
        yield both


@pytest.fixture(scope="module")
def alone(upstream: MisbehavingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = CONFIG.format(store="", upstream=upstream.base_url)
    with Gateway.over(config, tmp_path_factory.mktemp("budgets")) as gateway:
        yield gateway


def test_fifty_at_once_through_two_gateways_against_a_budget_for_three(
    pair: tuple[Gateway, Gateway], slow_upstream: MisbehavingUpstream
) -> None:
    first, _ = pair
    key = first.key("small")
    body = {"model": "probe/slowly", "messages": MESSAGE, "max_tokens": 1000}
    raws = [json.dumps(body | {"user": uuid.uuid4().hex}).encode() for _ in range(50)]
    worst = len(raws[0]) // 4 * 1000 + 1000 * 2000
    first.tollhouse("budgets", "set", "small", f"{3 * worst / 1e9:.9f}", "--per", "month")
    time.sleep(1.0)  # both have heard of it
    before = len(slow_upstream.of("slowly"))
    with ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(lambda n: pair[n % 2].post("/v1/chat/completions", raws[n], key), range(50)))
    statuses = [status for status, _, _ in replies]
    assert (statuses.count(200), statuses.count(429)) == (3, 47)
    assert len(slow_upstream.of("slowly")) - before == 3
    refused = next(reply for reply in replies if reply[0] == 429)
    assert json.loads(refused[2])["error"]["code"] == "budget_exceeded"

    # Settled at what they cost, a small part of the worst case: there is room for two more, at either gateway.
    for gateway in pair:
        assert gateway.post("/v1/chat/completions", raws[0] + b" ", key)[0] == 200


def test_every_route_that_can_spend_is_checked(alone: Gateway, upstream: MisbehavingUpstream) -> None:
    known = {path for handler in HANDLERS for path in handler.paths if path.startswith(("/v1", "/tokenize"))}
    posts = {path for path in known if path in ROUTES or path in PASSING}
    others = known - posts - {"/v1/models", "/v1/models/{name:path}"}
    assert not [path for path in others if _takes_post(path)], "a new route: can it spend?"
    key = alone.key("poor")
    alone.tollhouse("budgets", "set", "poor", "0", "--per", "day")
    time.sleep(1.0)
    before = len(upstream.received)
    for path, body in ROUTES.items():
        if body is None or path not in known:
            continue
        for stream in (False, True) if "embeddings" not in path else (False,):
            status, _, answer = alone.post(path, body | ({"stream": True} if stream else {}), key)
            assert (status, b"budget" in answer) == (429, True), (path, answer)
    assert len(upstream.received) == before


def _takes_post(path: str) -> bool:
    """Plain ASGI handlers take any method; the others say which."""
    for handler in HANDLERS:
        if path in handler.paths:
            methods = getattr(handler, "http_methods", {"POST"})
            if "POST" in methods:
                return True
    return False


def test_the_command_line_shows_what_was_spent(alone: Gateway) -> None:
    key = alone.key("shown")
    alone.tollhouse("budgets", "set", "shown", "1", "--per", "month", "--soft", "--warn-at", "1")
    time.sleep(1.0)
    assert alone.post("/v1/chat/completions", ROUTES["/v1/chat/completions"], key)[0] == 200
    until = time.monotonic() + 10
    while "$0.000025" not in (listed := alone.tollhouse("budgets", "list", "--tenant", "shown")):
        assert time.monotonic() < until, listed
        time.sleep(0.1)
    assert "soft" in listed
    alone.tollhouse("budgets", "remove", "shown", "--per", "month", "--soft")
    assert "no budgets yet" in alone.tollhouse("budgets", "list", "--tenant", "shown")
