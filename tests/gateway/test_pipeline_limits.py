"""Limits: slots that are held no longer than needed, and headers that say how a tenant stands."""

import asyncio
from typing import Any

import pytest

from gateway.tenants.types import Limits
from tests.support.in_process import Gate, Line, chat

pytestmark = pytest.mark.anyio


ODD: list[tuple[Any, dict[str, str]]] = [
    (chat(), {"cache_control": "max-age=²"}),
    (chat(), {"cache_control": "max-age=" + "9" * 400}),
    (chat(), {"cache_control": "max-age=-1, max-age=, ,,="}),
    (chat(), {"cache_control": "only-if-cached"}),
    (chat(), {"x_tollhouse_tier": "ÿ\x00"}),
    (chat(), {"x_tollhouse_namespace": "\x00\x7f²"}),
    (chat("nothing"), {}),
    (chat("locked/ok"), {}),
    (chat("auto"), {}),
    (chat("embed/ok"), {}),
    (chat("probe/500"), {}),
    (chat("probe/not-json"), {}),
    (chat("probe/ok", max_tokens=2**40), {}),
    (chat("nothing"), {"x_tollhouse_dry_run": "1"}),
    (chat(), {"x_tollhouse_dry_run": "1", "x_tollhouse_tier": "gold"}),
    (b'{"model":"probe/ok","messages":[{"role":"user","content":"\\ud800"}]}', {}),
    (b'{"model":"probe/ok","seed":1e999,"messages":[{"role":"user","content":"x"}]}', {}),
    (b'{"model":"probe/ok","x":' + b"[" * 900 + b"]" * 900 + b',"messages":[{"role":"user","content":"x"}]}', {}),
    (b"[", {}),
    (b"", {}),
]


async def test_no_odd_request_keeps_its_slot(gate: Gate) -> None:
    key = await gate.tenant("narrow", Limits(concurrent_requests=1, tokens_per_minute=1_000_000))
    for body, headers in ODD:
        line = await gate.ask(body, key=key, **headers)
        assert line.status != 500, (body, headers)
        assert line.get("x-request-id"), (body, headers)
        good = await gate.ask(chat("probe/ok", str(body)), key=key)
        assert good.status == 200, (body, headers, good.body)


async def test_a_slot_is_held_while_a_request_runs_and_no_longer(gate: Gate) -> None:
    key = await gate.tenant("narrow", Limits(concurrent_requests=1))
    line = Line()
    asking = asyncio.create_task(gate.ask(chat("probe/silence"), key=key, line=line))
    await gate.until(lambda: gate.num_sent("silence") == 1)
    refused = await gate.ask(chat(), key=key)
    assert (refused.status, refused.error["code"]) == (429, "concurrency_limit_exceeded")
    line.leave()
    await asking
    assert (await gate.ask(chat(), key=key)).status == 200


async def test_a_fault_of_our_own_gives_its_slot_back(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    key = await gate.tenant("narrow", Limits(concurrent_requests=1))
    with monkeypatch.context() as patched:
        patched.setattr(gate.house.cache, "lookup", broken)
        assert (await gate.ask(chat(), key=key)).status == 500
    assert (await gate.ask(chat(), key=key)).status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_say_how_the_tenant_stands(gate: Gate, stream: bool) -> None:
    """Its own standing, not ours at the upstream, whether a model answers or the cache."""
    key = await gate.tenant("narrow", Limits(requests_per_minute=100, tokens_per_minute=50_000))
    body = chat(stream=stream, max_tokens=100)
    for outcome in ("miss", "hit-exact"):
        line = await gate.ask(body, key=key)
        assert (line.status, line["x-tollhouse-cache"]) == (200, outcome)
        assert line["x-ratelimit-limit-requests"] == "100"
        assert 90 <= int(line["x-ratelimit-remaining-requests"]) < 100
    first = await gate.ask(chat("probe/ok", "Another question?", stream=stream), key=key)
    assert first["x-ratelimit-limit-tokens"] == "50000"
    assert 0 < int(first["x-ratelimit-remaining-tokens"]) < 50_000


async def test_a_refusal_for_its_tokens_says_each_header_once(gate: Gate) -> None:
    key = await gate.tenant("narrow", Limits(requests_per_minute=100, tokens_per_minute=3000))
    await gate.ask(chat(max_tokens=10), key=key)
    line = await gate.ask(chat(max_tokens=2970), key=key)
    assert (line.status, line.error["code"]) == (429, "rate_limit_exceeded")
    assert line["x-ratelimit-limit-tokens"] == "3000"
    assert int(line["retry-after-ms"]) > 0
