"""One request from top to bottom, in this process: real parts, a real upstream, and what is booked in the end."""

import asyncio
import json
import time
from typing import Any

import pytest

from gateway.errors import InvalidRequestError, OverloadedError
from gateway.estimates import prompt_tokens
from gateway.tenants.types import Limits
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.embeddings import parse_embedding
from tests.faults.misbehaving import Wire
from tests.faults.misbehaviours import completion
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate, Line, chat

pytestmark = pytest.mark.anyio

LONG = "word " * 800  # some 1,000 tokens by their size


def estimate(body: dict[str, Any]) -> int:
    return prompt_tokens(parse_chat(json.dumps(body).encode()))


async def test_an_answer_passes_as_it_came_and_says_what_it_cost(gate: Gate) -> None:
    line = await gate.ask(chat())
    assert (line.status, line.closed) == (200, True)
    assert line.json == completion()
    assert line["x-request-id"] == gate.record.id
    assert line["x-tollhouse-cache"] == "miss"
    assert line["x-tollhouse-model"] == "probe/ok"
    assert line["x-tollhouse-attempts"] == "1"
    assert line["x-tollhouse-cost-usd"] == "0.000025"  # 11 tokens at 1 $/M, 7 at 2 $/M
    assert line["x-tollhouse-saved-usd"] == "0.000225"  # 11 at 10 $/M and 7 at 20 $/M, less that
    assert line["x-upstream-request-id"] == "req-up"
    assert line.get("x-secret") is None


async def test_its_record_is_in_sql_with_its_attempt(fresh_gate: Gate) -> None:
    await fresh_gate.ask(chat())
    (row,) = await fresh_gate.rows("SELECT * FROM requests")
    (attempt,) = await fresh_gate.rows("SELECT * FROM attempts")
    assert (row["status"], row["http_status"], row["cache"], row["model"]) == ("ok", 200, "miss", "probe/ok")
    assert (row["prompt_tokens"], row["completion_tokens"], row["cost_nanousd"]) == (11, 7, 25_000)
    assert (attempt["request_id"], attempt["cost_nanousd"], attempt["estimated"]) == (row["id"], 25_000, 0)


async def test_the_upstream_gets_its_own_name_for_the_model_and_the_harmless_headers(gate: Gate) -> None:
    await gate.ask(chat("dear"), traceparent="00-1-2-01", tracestate="a=b", openai_organization="org-evil")
    (received,) = gate.upstream.of("ok")
    assert received.json["model"] == "ok"
    assert received.headers["traceparent"] == "00-1-2-01"
    assert received.headers["tracestate"] == "a=b"
    assert "openai-organization" not in received.headers
    assert "sk-th-" not in str(received.headers)


async def test_an_upstreams_refusal_passes_as_it_came_and_costs_nothing(gate: Gate) -> None:
    line = await gate.ask(chat("probe/context-length"))
    assert (line.status, line.error["code"], line.error["param"]) == (400, "context_length_exceeded", "messages")
    assert (gate.record.status, gate.record.http_status, gate.record.error_code) == ("error", 400, "http_400")
    assert (gate.record.cost_nanousd, gate.record.usage.total_tokens) == (0, 0)
    assert gate.record.saved_by_routing_nanousd == 0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"detail":[{"loc":["top_k"],"msg":"too low"}]}', '[{"loc":["top_k"],"msg":"too low"}]'),
        (b'{"detail":"no such adapter"}', "no such adapter"),
        (b'{"object":"error","message":"max_tokens is too large","code":40001}', "max_tokens is too large"),
        (b'{"error":"inputs must be shorter","error_type":"validation"}', "inputs must be shorter"),
        (b'{"error":true,"message":"not loaded"}', "not loaded"),
        (b"unknown\nparameter: top_k", "unknown parameter: top_k"),
        (b"x" * 9000, "x" * 2000),
    ],
)
async def test_a_refusal_of_another_shape_keeps_its_reason(gate: Gate, body: bytes, says: str) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.json(body, "422 Unprocessable Entity")

    gate.upstream.on("refusing", refuse)
    line = await gate.ask(chat("probe/refusing"))
    assert (line.status, line.error["code"]) == (422, "http_422")
    assert line.error["message"] == f"The upstream answered with HTTP 422: {says}"


@pytest.mark.parametrize("body", [b"", b"<html><body>nginx</body></html>", b"\x00\xff", b"{cut", b"[]", b"5", b"{}"])
async def test_a_refusal_that_tells_people_nothing_says_so(gate: Gate, body: bytes) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.json(body, "404 Not Found")

    gate.upstream.on("silent", refuse)
    line = await gate.ask(chat("probe/silent"))
    assert (line.status, line.error["message"]) == (404, "The upstream answered with HTTP 404 and no reason.")


async def test_an_answer_without_usage_is_charged_by_its_length(gate: Gate) -> None:
    async def silent(wire: Wire) -> None:
        await wire.json(completion("x" * 400) | {"usage": None})

    gate.upstream.on("uncounted", silent)
    body = chat("probe/uncounted")
    assert (await gate.ask(body)).status == 200
    usage = gate.record.usage
    assert usage.estimated
    assert usage.prompt_tokens == estimate(body)
    assert usage.completion_tokens == 100
    assert gate.record.cost_nanousd == usage.prompt_tokens * 1000 + usage.completion_tokens * 2000
    assert gate.record.cost_nanousd == gate.record.attempts[0].cost_nanousd


async def test_embeddings_pass_and_are_compared_with_nothing(gate: Gate) -> None:
    line = await gate.ask({"model": "embed/ok", "input": "harbour"}, parse_embedding)
    assert line.json["data"][0]["embedding"] == [5.0, -0.5, 0.25]
    assert line["x-tollhouse-cache"] == "bypass"
    assert gate.record.cost_nanousd == 1000
    assert gate.record.baseline_model is None


# Answers from the cache.


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


async def test_a_json_answer_to_a_stream_request_reaches_the_client_as_a_stream(gate: Gate) -> None:
    body = chat("probe/json-for-stream", stream=True, stream_options={"include_usage": True})
    line = await gate.ask(body)
    assert line["content-type"].startswith("text/event-stream")
    assert line.text == "ok"
    assert line.events[-1]["usage"]["total_tokens"] == 18
    assert (gate.record.status, gate.record.stream, gate.record.cost_nanousd) == ("ok", True, 25_000)


# Refusals at the gate.


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (chat(), {"authorization": "Bearer sk-th-wrong"}, 401, "invalid_api_key"),
        (b"{not json", {}, 400, None),
        ({"model": "probe/ok"}, {}, 400, "missing_required_parameter"),
    ],
)
async def test_a_refusal_at_the_gate_has_an_id_and_is_counted_and_logged(
    fresh_gate: Gate,
    capsysbinary: pytest.CaptureFixture[bytes],
    body: Any,
    headers: dict[str, str],
    status: int,
    code: str | None,
) -> None:
    line = await fresh_gate.ask(body, **headers)
    assert (line.status, line.error["code"]) == (status, code)
    check_refusal(fresh_gate, line, capsysbinary.readouterr().out)
    assert fresh_gate.records == []
    assert fresh_gate.num_sent() == 0


def check_refusal(gate: Gate, line: Line, printed: bytes) -> None:
    assert line["x-request-id"]
    said = [json.loads(each) for each in printed.splitlines() if b'"refusal"' in each]
    assert len(said) == 1
    assert said[0]["event"] == "refusal"
    assert line["x-request-id"] in said[0].values()
    assert b"sk-th-" not in printed
    counted = gate.house.metrics.exposition().decode()
    (series,) = [each for each in counted.splitlines() if each.startswith("tollhouse_refusals_total{")]
    assert f'status="{line.status}"' in series
    assert f'code="{line.error["code"] or line.error["type"]}"' in series
    assert series.endswith(" 1.0")


async def test_a_request_too_many_is_refused_with_an_id(
    fresh_gate: Gate, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    key = await fresh_gate.tenant("narrow", Limits(requests_per_minute=1))
    assert (await fresh_gate.ask(chat(), key=key)).status == 200
    capsysbinary.readouterr()
    line = await fresh_gate.ask(chat(), key=key)
    assert (line.status, line.error["code"]) == (429, "rate_limit_exceeded")
    assert int(line["retry-after"]) > 0
    assert line["x-ratelimit-remaining-requests"] == "0"
    check_refusal(fresh_gate, line, capsysbinary.readouterr().out)


async def test_a_model_that_nobody_serves_is_refused(gate: Gate) -> None:
    line = await gate.ask(chat("nothing"))
    assert (line.status, line.error["code"], line.error["param"]) == (404, "model_not_found", "model")
    assert line["x-request-id"]


async def test_a_glob_of_a_provider_without_its_key_is_refused_by_the_variables_name(gate: Gate) -> None:
    line = await gate.ask(chat("locked/ok"))
    assert (line.status, line.error["code"]) == (404, "model_not_found")
    assert "A_KEY_THAT_NOBODY_SETS" in line.error["message"]
    assert gate.upstream.received == []


# The dry run.


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


# What failed on its way.


async def test_a_client_that_leaves_pays_for_its_prompt(gate: Gate) -> None:
    body, line = chat("probe/silence", LONG), Line()
    asking = asyncio.create_task(gate.ask(body, line=line))
    await gate.until(lambda: gate.num_sent("silence") == 1)
    line.leave()
    await asking
    await gate.until(lambda: gate.upstream.of("silence")[0].hung_up_after_s is not None)
    record = gate.record
    assert (record.status, record.http_status, record.error_code) == ("cancelled", 499, "client_closed_request")
    assert record.usage.estimated
    assert record.usage.prompt_tokens == estimate(body)
    assert record.cost_nanousd == record.attempts[0].cost_nanousd == estimate(body) * 1000
    assert record.saved_by_routing_nanousd == 0


@pytest.mark.parametrize(
    ("model", "stream", "status", "code"),
    [
        ("hasty/silence", False, 504, "timeout_total"),
        ("hasty/silence", True, 504, "timeout_first_token"),
        ("hasty/half-body-silence", False, 504, "timeout_idle"),
        ("probe/half-body", False, 502, "protocol_error"),
        ("probe/reset", False, 502, "protocol_error"),
        ("probe/cut-before-token", True, 502, "protocol_error"),
    ],
)
async def test_a_call_that_may_have_run_is_charged_its_prompt(
    gate: Gate, model: str, stream: bool, status: int, code: str
) -> None:
    body = chat(model, stream=stream)
    line = await gate.ask(body)
    assert line.status == status
    (attempt,) = gate.record.attempts
    assert (attempt.status, attempt.error_code) == ("error", code)
    assert attempt.usage.estimated
    assert attempt.usage.prompt_tokens == estimate(body)
    assert gate.record.cost_nanousd == attempt.cost_nanousd == estimate(body) * 1000
    assert line["x-tollhouse-cost-usd"] != "0.0"
    assert gate.record.saved_by_routing_nanousd == 0


@pytest.mark.parametrize("model", ["nowhere", "probe/500", "probe/503-busy", "probe/401", "probe/422"])
async def test_a_call_that_never_ran_costs_nothing(gate: Gate, model: str) -> None:
    line = await gate.ask(chat(model))
    assert line.status >= 400
    assert (gate.record.status, gate.record.cost_nanousd, gate.record.usage.total_tokens) == ("error", 0, 0)
    assert not gate.record.attempts[0].usage.estimated


@pytest.mark.parametrize("model", ["probe/silence", "hasty/silence", "probe/half-body"])
async def test_the_tokens_of_a_cut_off_call_stay_used(gate: Gate, model: str) -> None:
    """Whoever leaves each time before the answer comes gets no model for free."""
    body = chat(model, LONG, max_tokens=10)
    key = await gate.tenant("narrow", Limits(tokens_per_minute=estimate(body) + 300))
    line = Line()
    asking = asyncio.create_task(gate.ask(body, line=line, key=key))
    await gate.until(lambda: len(gate.upstream.received) == 1)
    if model == "probe/silence":
        line.leave()
    await asking
    again = await gate.ask(chat("probe/ok", LONG, max_tokens=10), key=key)
    assert (again.status, again.error["code"]) == (429, "rate_limit_exceeded")
    assert len(gate.upstream.received) == 1


async def test_the_tokens_of_a_refused_call_are_given_back(gate: Gate) -> None:
    body = chat("probe/500", LONG, max_tokens=10)
    key = await gate.tenant("narrow", Limits(tokens_per_minute=estimate(body) + 300))
    assert (await gate.ask(body, key=key)).status == 502
    assert (await gate.ask(chat("probe/ok", LONG, max_tokens=10), key=key)).status == 200


async def test_a_fault_of_our_own_is_a_500_that_tells_nothing_and_is_booked(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("an inner secret")

    monkeypatch.setattr(gate.house.cache, "lookup", broken)
    line = await gate.ask(chat())
    assert (line.status, line.error["code"]) == (500, "internal_error")
    assert "secret" not in line.error["message"]
    assert (gate.record.status, gate.record.http_status, gate.record.cost_nanousd) == ("error", 500, 0)


async def test_an_engine_that_is_full_says_so_with_its_own_headers(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: Any) -> None:
        raise OverloadedError("the queue is full", headers={"retry-after": "3"})

    monkeypatch.setattr(gate.house.snapshot.catalog.fleet("dear").deployments[0].backend, "send", full)
    line = await gate.ask(chat("dear"))
    assert (line.status, line.error["code"], line["retry-after"]) == (503, "overloaded", "3")
    assert gate.record.cost_nanousd == 0


async def test_a_refusal_of_our_own_is_booked_by_its_type_where_it_has_no_code(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise InvalidRequestError("n is too large", param="n")

    monkeypatch.setattr(gate.house.snapshot.catalog.fleet("dear").deployments[0].backend, "send", refuse)
    line = await gate.ask(chat("dear"))
    assert (line.status, line.error["code"], line.error["param"]) == (400, None, "n")
    assert (gate.record.status, gate.record.http_status, gate.record.error_code) == (
        "error",
        400,
        "invalid_request_error",
    )
    assert gate.record.cost_nanousd == 0


async def test_a_gateway_that_stops_books_what_it_was_doing(gate: Gate) -> None:
    asking = asyncio.create_task(gate.ask(chat("probe/silence")))
    await gate.until(lambda: gate.num_sent("silence") == 1)
    (serving,) = [task for task in asyncio.all_tasks() if "Gate._serve" in str(task.get_coro())]
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (gate.record.status, gate.record.usage.estimated) == ("cancelled", True)
    await gate.until(lambda: gate.upstream.of("silence")[0].hung_up_after_s is not None)


# Limits.

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


async def test_no_answer_is_fresh_enough_for_a_max_age_that_is_no_number(gate: Gate) -> None:
    await gate.ask(chat())
    line = await gate.ask(chat(), cache_control="max-age=²")
    assert (line.status, line["x-tollhouse-cache"], line["x-tollhouse-cache-reason"]) == (200, "miss", "max-age")


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


# The client's own patience.


async def test_a_client_may_lower_the_deadline_of_all_attempts(gate: Gate) -> None:
    started = time.monotonic()
    line = await gate.ask(chat("probe/silence"), x_tollhouse_timeout_s="0.3")
    assert (line.status, line.error["code"]) == (504, "upstream_timeout")
    assert time.monotonic() - started < 5
    assert gate.record.attempts[0].error_code == "timeout_deadline"
    assert (await gate.ask(chat(), x_tollhouse_timeout_s="30")).status == 200


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon", ""])
async def test_a_deadline_that_makes_no_sense_is_refused(gate: Gate, seconds: str) -> None:
    line = await gate.ask(chat(), x_tollhouse_timeout_s=seconds)
    assert (line.status, line.error["param"]) == (400, "x-tollhouse-timeout-s")
