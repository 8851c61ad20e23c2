"""Requests that the cache answers, that may be answered by nothing else, and that are only decided."""

from typing import Any

import pytest

from gateway.tenants.types import Limits
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.embeddings import parse_embedding
from tests.faults.misbehaviours import completion
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate, chat

pytestmark = pytest.mark.anyio


async def test_a_repeat_is_a_hit_that_costs_nothing(gate: Gate) -> None:
    first = await gate.ask(chat())
    again = await gate.ask(chat())
    assert gate.num_sent() == 1
    assert again["x-tollhouse-cache"] == "hit-exact"
    assert again.json["choices"] == first.json["choices"]
    assert again.json["id"] != first.json["id"]
    miss, hit = gate.records
    assert (hit.cost_nanousd, hit.attempts, hit.saved_by_cache_nanousd) == (0, (), miss.cost_nanousd)
    assert again["x-tollhouse-cost-usd"] == "0.0"


async def test_a_hit_becomes_the_stream_that_was_asked_for(gate: Gate) -> None:
    await gate.ask(chat())
    line = await gate.ask(chat(stream=True, stream_options={"include_usage": True}))
    assert line["content-type"].startswith("text/event-stream")
    assert line["x-tollhouse-cache"] == "hit-exact"
    assert line.text == "ok"
    assert line.events[-1]["usage"]["completion_tokens"] == 7
    assert b": tollhouse cost-usd=0.0 " in line.body


async def test_a_cache_that_cannot_take_an_answer_costs_the_client_nothing(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> str:
        raise RuntimeError("no room")

    monkeypatch.setattr(gate.house.cache, "admit", broken)
    whole = await gate.ask(chat())
    streamed = await gate.ask(chat(stream=True))
    assert whole.json == completion()
    assert streamed.text == "xx"
    assert [record.status for record in gate.records] == ["ok", "ok"]


async def test_a_dry_run_decides_and_does_nothing_else(gate: Gate) -> None:
    key = await gate.tenant("narrow", Limits(concurrent_requests=1))
    for _ in range(2):
        line = await gate.ask(chat("dear"), key=key, x_tollhouse_dry_run="1")
        assert (line.status, line.json["object"], line.json["candidates"]) == (200, "tollhouse.decision", ["dear"])
    assert gate.upstream.received == []
    assert gate.records == []


# only-if-cached: an answer from the cache or none.


async def test_only_if_cached_is_served_from_the_cache(gate: Gate) -> None:
    assert (await gate.ask(chat(), cache_control="only-if-cached")).status == 504
    await gate.ask(chat())
    assert (await gate.ask(chat(), cache_control="only-if-cached")).status == 200
    assert gate.num_sent() == 1


@pytest.mark.parametrize(
    ("body", "parse", "directives"),
    [
        (chat(), parse_chat, "only-if-cached"),
        (chat(), parse_chat, "no-store, only-if-cached"),
        (chat(), parse_chat, "no-cache, only-if-cached"),
        (chat(), parse_chat, "max-age=0, only-if-cached"),
        (chat(stream=True), parse_chat, "no-store, only-if-cached"),
        (chat(temperature=1.9), parse_chat, "only-if-cached"),
        ({"model": "embed/ok", "input": "harbour"}, parse_embedding, "only-if-cached"),
        ({"model": "probe/ok", "prompt": ["one", "two"]}, parse_completion, "only-if-cached"),
    ],
)
async def test_only_if_cached_never_calls_a_model(gate: Gate, body: Any, parse: Any, directives: str) -> None:
    line = await gate.ask(body, parse, cache_control=directives)
    assert (line.status, line.error["code"]) == (504, "not_cached")
    assert gate.upstream.received == []
    assert (gate.record.http_status, gate.record.attempts, gate.record.cost_nanousd) == (504, (), 0)


async def test_only_if_cached_never_calls_a_model_where_the_cache_is_off(gate_with: OpenGate) -> None:
    gate = await gate_with(CONFIG.replace("semantic = false", "enabled = false"))
    line = await gate.ask(chat(), cache_control="only-if-cached")
    assert (line.status, line.error["code"]) == (504, "not_cached")
    assert gate.upstream.received == []


async def test_no_answer_is_fresh_enough_for_a_max_age_that_is_no_number(gate: Gate) -> None:
    await gate.ask(chat())
    line = await gate.ask(chat(), cache_control="max-age=²")
    assert (line.status, line["x-tollhouse-cache"], line["x-tollhouse-cache-reason"]) == (200, "miss", "max-age")
