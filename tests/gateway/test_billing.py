"""What stands in SQL when a request is over, however it went: one row, its attempts beneath it, each token once."""

import json
from typing import Any

import pytest

from gateway.wire.sse import DONE
from tests.faults.misbehaving import Script, Wire
from tests.faults.misbehaviours import STOP, TOKEN, chunk, completion, error
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate, Line, chat

pytestmark = pytest.mark.anyio

PRICED = """
[router]
default_tier = "shaky"
[[provider]]
name = "stubborn"
base_url = "{upstream}"
max_retries = 1
[[model]]
name = "thousand"
provider = "upstream"
upstream_name = "cached"
input_usd_per_mtok = 1000.0
cached_input_usd_per_mtok = 100.0
cache_write_input_usd_per_mtok = 1250.0
output_usd_per_mtok = 4000.0
reasoning_output_usd_per_mtok = 3000.0
[[model]]
name = "shy"
provider = "stubborn"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
[tier.shaky]
models = ["dead", "dear"]
"""
SPENT = 11 * 1_000 + 7 * 2_000  # of USAGE, in nano-dollars at 1 and 2 $/M


@pytest.fixture
async def gate(gate_with: OpenGate) -> Gate:
    gate = await gate_with(CONFIG + PRICED)
    await gate.start_over()
    return gate


async def books(gate: Gate) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The one request there is, and its attempts in order."""
    (request,) = await gate.rows("SELECT * FROM requests")
    attempts = await gate.rows("SELECT * FROM attempts ORDER BY attempt")
    assert [each["attempt"] for each in attempts] == list(range(len(attempts)))
    assert {each["request_id"] for each in attempts} <= {request["id"]}
    assert request["cost_nanousd"] == sum(each["cost_nanousd"] for each in attempts)
    return request, attempts


def reporting(**usage: Any) -> Script:
    """Answers in the form that is asked for, with this usage."""

    async def script(wire: Wire) -> None:
        if not wire.request.json.get("stream"):
            return await wire.json(completion(usage=usage))
        await wire.start_events()
        for event in (TOKEN, STOP, chunk(usage=usage)):
            await wire.event(event)
        return await wire.end()

    return script


@pytest.mark.parametrize("stream", [False, True])
async def test_cached_prompt_tokens_are_billed_once(gate: Gate, stream: bool) -> None:
    """1,000 tokens of which 900 were cached, at 1.00 and 0.10 a thousand."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000}
    gate.upstream.on("cached", reporting(**usage, prompt_tokens_details={"cached_tokens": 900}))
    await gate.ask(chat("thousand", stream=stream))
    request, (attempt,) = await books(gate)
    for row in (request, attempt):
        assert (row["cost_nanousd"], row["prompt_tokens"], row["cached_tokens"]) == (190_000_000, 1000, 900)
        assert not row["estimated"]


@pytest.mark.parametrize("stream", [False, True])
async def test_cache_writes_and_thoughts_are_billed_at_their_own_prices(gate: Gate, stream: bool) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "cache_creation_input_tokens": 400}
    details = {"completion_tokens_details": {"reasoning_tokens": 60}}
    gate.upstream.on("cached", reporting(**usage, **details, prompt_cache_hit_tokens=500))
    await gate.ask(chat("thousand", stream=stream))
    request, (attempt,) = await books(gate)
    for row in (request, attempt):
        counts = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens")
        assert [row[count] for count in counts] == [1000, 500, 400, 100, 60]
        assert row["cost_nanousd"] == 1000 * (100 * 1000 + 500 * 100 + 400 * 1250 + 40 * 4000 + 60 * 3000)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_success_is_one_row_with_one_attempt(gate: Gate, stream: bool) -> None:
    await gate.ask(chat(stream=stream))
    request, (attempt,) = await books(gate)
    assert (request["status"], attempt["status"], request["cost_nanousd"]) == ("ok", "ok", SPENT)
    assert (request["prompt_tokens"], request["completion_tokens"], request["estimated"]) == (11, 7, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_retry_is_an_attempt_and_its_refusal_costs_nothing(gate: Gate, stream: bool) -> None:
    async def busy_once(wire: Wire) -> None:
        if wire.index:
            return await reporting(prompt_tokens=11, completion_tokens=7)(wire)
        return await wire.json(error("busy", "overloaded"), "503 Service Unavailable", {"retry-after": "0"})

    gate.upstream.on("shy", busy_once)
    await gate.ask(chat("shy", stream=stream))
    request, (first, second) = await books(gate)
    assert (request["status"], first["status"], second["status"]) == ("ok", "error", "ok")
    assert (first["cost_nanousd"], request["cost_nanousd"]) == (0, SPENT)
    assert (first["prompt_tokens"], request["prompt_tokens"], request["completion_tokens"]) == (0, 11, 7)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fallback_is_an_attempt_at_its_own_price(gate: Gate, stream: bool) -> None:
    await gate.ask(chat("auto", stream=stream))
    request, (first, second) = await books(gate)
    assert (first["model"], second["model"], request["model"]) == ("dead", "dear", "dear")
    assert (request["cost_nanousd"], request["completion_tokens"]) == (10 * SPENT, 7)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("behaviour", ["redirect", "no-content", "html", "not-json", "nothing"])
async def test_what_no_model_made_costs_nothing(gate: Gate, behaviour: str, stream: bool) -> None:
    line = await gate.ask(chat(f"probe/{behaviour}", stream=stream))
    request, (attempt,) = await books(gate)
    assert (line.status, request["status"], attempt["status"]) == (502, "error", "error")
    assert attempt["error_code"] == ("redirected" if behaviour == "redirect" else "no_answer")
    assert attempt["http_status"] == {"redirect": 302, "no-content": 204}.get(behaviour, 200)
    assert (request["cost_nanousd"], request["prompt_tokens"], request["completion_tokens"]) == (0, 0, 0)


@pytest.mark.parametrize("behaviour", ["error-named", "error-named-json"])
async def test_an_error_that_only_its_events_name_tells_is_no_first_token(gate: Gate, behaviour: str) -> None:
    line = await gate.ask(chat(f"probe/{behaviour}", stream=True))
    request, (attempt,) = await books(gate)
    assert (line.status, attempt["error_code"], attempt["ttft_ms"]) == (502, "error_in_answer", None)
    assert request["cost_nanousd"] == 0


async def test_later_it_ends_the_stream_in_an_error(gate: Gate) -> None:
    line = await gate.ask(chat("probe/error-named-later", stream=True))
    request, _ = await books(gate)
    assert b'"message":"no GPU left"' in line.body
    assert DONE not in line.body
    assert (request["status"], request["error_code"]) == ("error", "upstream_stream_error")


@pytest.mark.parametrize("behaviour", ["half-json", "wrong-type"])
async def test_a_broken_answer_that_a_model_may_have_made_costs_its_prompt(gate: Gate, behaviour: str) -> None:
    await gate.ask(chat(f"probe/{behaviour}"))
    request, (attempt,) = await books(gate)
    assert (attempt["error_code"], request["estimated"]) == ("protocol_error", 1)
    assert request["cost_nanousd"] == request["prompt_tokens"] * 1_000 > 0


async def test_an_answer_without_a_choice_costs_what_its_provider_reports(gate: Gate) -> None:
    line = await gate.ask(chat("probe/no-choices"))
    request, (attempt,) = await books(gate)
    assert (line.status, attempt["error_code"], attempt["estimated"]) == (502, "no_answer", 0)
    assert request["cost_nanousd"] == SPENT


@pytest.mark.parametrize("behaviour", ["cut", "short"])
async def test_a_cut_stream_is_booked_as_far_as_it_came(gate: Gate, behaviour: str) -> None:
    line = await gate.ask(chat(f"probe/{behaviour}", stream=True))
    deltas = [json.loads(piece)["choices"] for piece in line.body.split(b"data: ")[1:] if b'"choices"' in piece]
    request, (attempt,) = await books(gate)
    assert (request["status"], attempt["status"], request["estimated"]) == ("error", "error", 1)
    assert abs(request["completion_tokens"] - len(deltas)) <= 1
    assert request["cost_nanousd"] == request["prompt_tokens"] * 1_000 + request["completion_tokens"] * 2_000


async def test_a_cancelled_stream_is_booked_as_far_as_it_came(gate: Gate) -> None:
    line = await gate.ask(chat("probe/paced", stream=True), line=Line(leaves_after=b'"3"'))
    request, (attempt,) = await books(gate)
    assert DONE not in line.body
    assert (request["status"], attempt["status"], request["http_status"]) == ("cancelled", "cancelled", 499)
    assert (request["estimated"], request["completion_tokens"]) == (1, pytest.approx(4, abs=1))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_hit_has_no_attempt_and_costs_nothing(gate: Gate, stream: bool) -> None:
    await gate.ask(chat())
    await gate.ask(chat(stream=stream))
    _, hit = await gate.rows("SELECT * FROM requests ORDER BY started_at")
    (attempt,) = await gate.rows("SELECT * FROM attempts")
    assert (hit["cache"], hit["cost_nanousd"], hit["saved_by_cache_nanousd"]) == ("hit-exact", 0, SPENT)
    assert attempt["request_id"] != hit["id"]
