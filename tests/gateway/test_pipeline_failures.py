"""What fails on its way, is left by its client, or says no usage: what it costs, and what is booked."""

import asyncio
import json
from typing import Any

import pytest

from gateway.errors import InvalidRequestError, OverloadedError
from gateway.estimates import prompt_tokens
from gateway.tenants.types import Limits
from gateway.wire.chat import parse_chat
from gateway.wire.messages.dialect import MessagesDialect
from tests.faults.misbehaving import Wire
from tests.faults.misbehaviours import USAGE, completion
from tests.support.in_process import Gate, Line, chat

pytestmark = pytest.mark.anyio

LONG = "word " * 800  # some 1,000 tokens by their size


def estimate(body: dict[str, Any]) -> int:
    return prompt_tokens(parse_chat(json.dumps(body).encode()))


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


async def test_an_answer_that_the_clients_api_cannot_tell_is_booked_as_the_error_that_it_got(gate: Gate) -> None:
    """The provider counts it among its successes, and on its bill."""

    async def in_parts(wire: Wire) -> None:
        await wire.json(completion() | {"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]})

    gate.upstream.on("in-parts", in_parts)
    body = {"model": "probe/in-parts", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    line = await gate.ask(body, dialect=MessagesDialect())
    assert line.status == 502
    record = gate.record
    assert (record.status, record.http_status, record.error_code) == ("error", 502, "protocol_error")
    assert (record.attempts[0].status, record.usage.total_tokens) == ("ok", USAGE["total_tokens"])
    assert record.cost_nanousd == record.attempts[0].cost_nanousd == 11 * 1000 + 7 * 2000


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
