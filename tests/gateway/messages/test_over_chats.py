"""Anthropic's clients in front of OpenAI's API, through the whole gateway."""

import pytest

from gateway.catalog import Catalog
from gateway.config import parse
from tests.faults.misbehaving import Wire
from tests.gateway.messages.conftest import CLAUDE, ask, told
from tests.support.in_process import CONFIG, Gate, chat

pytestmark = pytest.mark.anyio


async def test_a_message_from_a_chat(gate: Gate) -> None:
    line = await ask(gate, "probe/ok", system="Be brief.")
    assert line.status == 200
    assert line.json["content"] == [{"type": "text", "text": "ok"}]
    assert (line.json["stop_reason"], line.json["usage"]["input_tokens"]) == ("end_turn", 11)
    (sent,) = gate.upstream.of("ok")
    assert sent.path == "/v1/chat/completions"
    assert sent.json["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (gate.record.endpoint, gate.record.model, gate.record.status) == ("messages", "probe/ok", "ok")
    assert (gate.record.usage.prompt_tokens, gate.record.cost_nanousd) == (11, 25_000)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("model", "field"), [("probe/limit", "max_tokens"), ("new/limit", "max_completion_tokens")])
async def test_the_limit_goes_by_the_name_that_the_provider_heeds(
    gate: Gate, model: str, field: str, stream: bool
) -> None:
    await ask(gate, model, stream=stream)
    await gate.ask(chat(model, max_completion_tokens=60, stream=stream))
    translated, own = (sent.json for sent in gate.upstream.of("limit"))
    assert {name: value for name, value in translated.items() if name.startswith("max_")} == {field: 50}
    assert {name: value for name, value in own.items() if name.startswith("max_")} == {"max_completion_tokens": 60}


async def test_a_stream_from_a_chats(gate: Gate) -> None:
    line = await ask(gate, "probe/ok", stream=True)
    kinds = [event["type"] for event in told(line)]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert told(line)[-2]["usage"]["input_tokens"] == 11
    assert b"[DONE]" not in line.body
    assert b": tollhouse cost-usd=0.000025" in line.body
    assert gate.record.usage.completion_tokens == 7


async def test_tools_in_pieces(gate: Gate) -> None:
    line = await ask(gate, "probe/tools", stream=True, tools=[{"name": "weather", "input_schema": {"type": "object"}}])
    starts = [event["content_block"] for event in told(line) if event["type"] == "content_block_start"]
    assert [(block["id"], block["name"]) for block in starts] == [(f"call_{index}", "weather") for index in range(3)]


@pytest.mark.parametrize("behaviour", ["cut", "short", "stall", "error-event"])
async def test_a_chat_that_breaks_off_never_looks_finished(gate: Gate, behaviour: str) -> None:
    line = await ask(gate, f"hasty/{behaviour}", stream=True)
    assert told(line)[-1]["type"] == "error"
    assert b"event: error\n" in line.body
    assert b"message_stop" not in line.body
    assert gate.record.status == "error"


@pytest.mark.parametrize(
    ("model", "status", "kind"),
    [
        ("nobody", 404, "not_found_error"),
        ("probe/400", 400, "invalid_request_error"),
        ("probe/413", 413, "request_too_large"),
        ("probe/401", 502, "api_error"),
        ("probe/500", 502, "api_error"),
        ("nowhere", 502, "api_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_are_in_anthropics_shape(gate: Gate, model: str, status: int, kind: str, stream: bool) -> None:
    line = await ask(gate, model, stream=stream)
    assert line.status == status
    assert set(line.json) == {"type", "error", "request_id"}
    assert (line.json["type"], line.json["error"]["type"]) == ("error", kind)
    assert line.json["request_id"] == line["x-request-id"] == line["request-id"] == gate.record.id
    assert gate.record.endpoint == "messages"


async def test_a_refusal_without_a_reason_has_the_type_of_its_status(gate: Gate) -> None:
    async def bare(wire: Wire) -> None:
        await wire.json(b"", "404 Not Found")

    gate.upstream.on("bare", bare)
    line = await ask(gate, "probe/bare")
    assert (line.status, line.json["error"]["type"]) == (404, "not_found_error")


async def test_what_only_anthropic_has_is_refused_elsewhere(gate: Gate) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    line = await ask(gate, "probe/ok", tools=[search])
    assert line.status == 400
    assert "web_search" in line.json["error"]["message"]
    assert gate.num_sent() == 0
    assert (await ask(gate, "claude", tools=[search])).status == 200


def test_auto_knows_which_models_can_do_what_only_anthropic_has() -> None:
    """The router asks for what a request needs, here "messages"."""
    tiers = '[tier.small]\nmodels = ["dear"]\n[tier.large]\nmodels = ["haiku"]\n'
    haiku = '[[model]]\nname = "haiku"\nprovider = "patient"\n'
    text = (CONFIG + CLAUDE).replace("{upstream}", "http://127.0.0.1:9") + haiku + tiers
    policy = Catalog(parse(text.encode()), {}, {}).policy
    assert policy is not None
    assert [name for name, model in policy.candidates.items() if "messages" in model.capabilities] == ["haiku"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["probe/ok", "claude"])
async def test_every_answer_has_the_id_that_anthropics_clients_look_for(gate: Gate, model: str, stream: bool) -> None:
    line = await ask(gate, model, stream=stream)
    assert line["request-id"] == line["x-request-id"] == gate.record.id
    assert (await gate.ask(chat(model, stream=stream))).get("request-id") is None


async def test_an_answer_is_cached_for_the_same_request(gate: Gate) -> None:
    first = await ask(gate, "probe/ok")
    again = await ask(gate, "probe/ok")
    assert again["x-tollhouse-cache"] == "hit-exact"
    assert again.json["content"] == first.json["content"]
    stream = await ask(gate, "probe/ok", stream=True)
    assert stream["x-tollhouse-cache"] == "hit-exact"
    assert told(stream)[-1]["type"] == "message_stop"
    assert (await ask(gate, "probe/ok", ("anthropic-beta", "b"))).get("x-tollhouse-cache") == "miss"
    assert (await ask(gate, "probe/ok", thinking={"type": "adaptive"}))["x-tollhouse-cache"] == "miss"
    assert (await gate.ask(chat("probe/ok")))["x-tollhouse-cache"] == "miss"  # another API, another question
    assert gate.num_sent() == 4
