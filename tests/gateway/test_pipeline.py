"""One request from top to bottom, in this process: real parts, a real upstream, and what is booked in the end."""

import time

import pytest

from gateway.wire.embeddings import parse_embedding
from tests.faults.misbehaving import Wire
from tests.faults.misbehaviours import completion
from tests.support.in_process import Gate, chat

pytestmark = pytest.mark.anyio


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


async def test_embeddings_pass_and_are_compared_with_nothing(gate: Gate) -> None:
    line = await gate.ask({"model": "embed/ok", "input": "harbour"}, parse_embedding)
    assert line.json["data"][0]["embedding"] == [5.0, -0.5, 0.25]
    assert line["x-tollhouse-cache"] == "bypass"
    assert gate.record.cost_nanousd == 1000
    assert gate.record.baseline_model is None


async def test_a_json_answer_to_a_stream_request_reaches_the_client_as_a_stream(gate: Gate) -> None:
    body = chat("probe/json-for-stream", stream=True, stream_options={"include_usage": True})
    line = await gate.ask(body)
    assert line["content-type"].startswith("text/event-stream")
    assert line.text == "ok"
    assert line.events[-1]["usage"]["total_tokens"] == 18
    assert (gate.record.status, gate.record.stream, gate.record.cost_nanousd) == ("ok", True, 25_000)


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
