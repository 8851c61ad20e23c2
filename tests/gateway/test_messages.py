"""Anthropic's Messages API through the whole gateway: in front of OpenAI's and in front of its own kind of provider."""

import json
from typing import Any

import pytest

from gateway.wire.messages.dialect import MessagesDialect
from tests.conformance.openai_schemas import conforms
from tests.faults.anthropic_behaviours import CLAUDES, ODD, WHOLE, events, framed
from tests.faults.misbehaving import MisbehavingUpstream
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate, Line, chat

pytestmark = pytest.mark.anyio

CLAUDE = """
[[provider]]
name = "anthropic"
kind = "anthropic"
base_url = "{upstream}"
api_key_env = "CLAUDE_KEY"
max_retries = 0
first_token_timeout_s = 2.0
idle_timeout_s = 0.3
[[provider]]
name = "patient"
kind = "anthropic"
base_url = "{upstream}"
max_retries = 1
[[model]]
name = "claude*"
provider = "anthropic"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
cached_input_usd_per_mtok = 0.1
[[model]]
name = "sonnet"
provider = "anthropic"
upstream_name = "claude"
max_output_tokens = 77
[[model]]
name = "patient"
provider = "patient"
upstream_name = "claude-recovers"
"""


@pytest.fixture
async def gate(gate_with: OpenGate, upstream: MisbehavingUpstream, monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setenv("CLAUDE_KEY", "sk-claude-secret")
    for name, script in CLAUDES.items():
        upstream.on(name, script)
    return await gate_with(CONFIG + CLAUDE)


def body(model: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": model,
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "Where is the harbour?"}],
    } | fields


async def ask(gate: Gate, model: str, *headers: tuple[str, str], line: Line | None = None, **fields: Any) -> Line:
    return await gate.ask(body(model, **fields), dialect=MessagesDialect(headers), line=line)


def told(line: Line) -> list[dict[str, Any]]:
    """The events of a stream, comments left out."""
    lines = [each[6:] for each in line.body.split(b"\n") if each.startswith(b"data: ")]
    return [json.loads(each) for each in lines]


# In front of OpenAI's API


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
    assert line.json["request_id"] == line["x-request-id"] == gate.record.id
    assert gate.record.endpoint == "messages"


async def test_what_only_anthropic_has_is_refused_elsewhere(gate: Gate) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    line = await ask(gate, "probe/ok", tools=[search])
    assert line.status == 400
    assert "web_search" in line.json["error"]["message"]
    assert gate.num_sent() == 0
    assert (await ask(gate, "claude", tools=[search])).status == 200


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


# In front of a provider of its own kind


async def test_the_clients_bytes_go_through_and_the_providers_come_back(gate: Gate) -> None:
    raw = b'{ "messages":[{"role":"user","content":"\\u00e9"}], "x_new": [1.50],"model" : "sonnet","max_tokens":5}'
    dialect = MessagesDialect((("anthropic-version", "2023-01-01"), ("anthropic-beta", "one,two")))
    line = await gate.ask(raw, dialect=dialect)
    (sent,) = gate.upstream.of("claude")
    assert sent.raw == raw.replace(b'"sonnet"', b'"claude"')
    assert sent.path == "/v1/messages"
    assert sent.headers["x-api-key"] == "sk-claude-secret"
    assert (sent.headers["anthropic-version"], sent.headers["anthropic-beta"]) == ("2023-01-01", "one,two")
    assert "authorization" not in sent.headers
    assert line.body == json.dumps(WHOLE["claude"], ensure_ascii=False).encode()
    assert line["x-upstream-request-id"] == "req_up"
    assert "the operator's" not in str(line.headers)


@pytest.mark.parametrize("name", ["claude", "claude-tools", "claude-thinks", "claude-odd"])
async def test_a_stream_comes_back_as_it_was(gate: Gate, name: str) -> None:
    line = await ask(gate, name, stream=True)
    *before, _comment, last = line.body.split(b"\n\n")[:-1]
    theirs = [framed(event).removesuffix(b"\n\n") for event in events(WHOLE[name])]
    assert [*before, last] == theirs
    usage = gate.record.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.completion_tokens) == (
        331,
        300,
        20,
        7,
    )
    assert not usage.estimated
    assert gate.record.attempts[0].ttft_ms is not None


async def test_a_stream_torn_anywhere(gate: Gate) -> None:
    line = await ask(gate, "claude-split", stream=True)
    deltas = [event["delta"]["text"] for event in told(line) if event["type"] == "content_block_delta"]
    assert "".join(deltas) == ODD
    assert gate.record.status == "ok"


async def test_thoughts_of_models_that_sign_none_are_not_shown_to_one_that_does(gate: Gate) -> None:
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    answer = {"type": "text", "text": "Yes."}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Oh.", "signature": ""}, signed, answer]},
        {"role": "user", "content": "Sure?"},
    ]
    await ask(gate, "claude", messages=turns)
    (sent,) = gate.upstream.of("claude")
    assert sent.json["messages"] == [turns[0], {"role": "assistant", "content": [signed, answer]}, turns[2]]
    await ask(gate, "probe/ok", messages=turns)
    assert gate.upstream.of("ok")[0].json["messages"][1]["reasoning_content"] == "Oh."


async def test_usage_and_price_are_read_from_what_passes(gate: Gate) -> None:
    await ask(gate, "claude")
    usage = gate.record.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.completion_tokens) == (
        331,
        300,
        20,
        7,
    )


@pytest.mark.parametrize("behaviour", ["claude-cut", "claude-short", "claude-stall", "claude-breaks"])
async def test_a_message_that_breaks_off_never_looks_finished(gate: Gate, behaviour: str) -> None:
    line = await ask(gate, behaviour, stream=True)
    assert told(line)[-1]["type"] == "error"
    assert b"message_stop" not in line.body
    assert gate.record.status == "error"
    assert gate.record.usage.estimated
    assert gate.record.usage.prompt_tokens == 331  # as far as it was reported


@pytest.mark.parametrize(
    ("model", "status", "kind"),
    [
        ("claude-400", 400, "invalid_request_error"),
        ("claude-404", 404, "not_found_error"),
        ("claude-429", 429, "rate_limit_error"),
        ("claude-529", 529, "overloaded_error"),
    ],
)
async def test_a_providers_refusal_passes_as_it_came(gate: Gate, model: str, status: int, kind: str) -> None:
    line = await ask(gate, model)
    assert (line.status, line.json["error"]["type"], line.json["request_id"]) == (status, kind, "req_up")
    assert line.get("retry-after") == ("7" if status in (429, 529) else None)


@pytest.mark.parametrize("model", ["claude-401", "claude-500", "claude-nonsense", "claude-error-first"])
async def test_what_is_no_business_of_the_clients_is_told_in_our_words(gate: Gate, model: str) -> None:
    line = await ask(gate, model, stream=model == "claude-error-first")
    assert (line.status, line.json["error"]["type"]) == (502, "api_error")
    assert b"sk-upstream" not in line.body


async def test_overloaded_is_tried_again(gate: Gate) -> None:
    assert (await ask(gate, "patient")).status == 200
    assert len(gate.record.attempts) == 2


async def test_plain_text_is_kept_and_thoughts_and_calls_are_not(gate: Gate) -> None:
    for name, outcome in (("claude", "hit-exact"), ("claude-thinks", "miss"), ("claude-tools", "miss")):
        for stream in (False, True):
            fields: dict[str, Any] = {"stream": stream, "temperature": 0.1 + stream * 0.1}
            first = await ask(gate, name, **fields)
            again = await ask(gate, name, **fields)
            assert (first["x-tollhouse-cache"], again["x-tollhouse-cache"]) == ("miss", outcome)


async def test_a_client_that_leaves_is_charged_what_passed(gate: Gate) -> None:
    await ask(gate, "claude-stall", stream=True, line=Line(leaves_after=b"text_delta"))
    assert gate.record.status == "cancelled"
    assert gate.record.usage.prompt_tokens == 331


# A chat in front of Anthropic


@pytest.mark.parametrize("name", WHOLE)
async def test_a_chat_is_answered_in_openais_words(gate: Gate, name: str) -> None:
    line = await gate.ask(chat(name))
    conforms(line.body, "CreateChatCompletionResponse")
    (sent,) = gate.upstream.of(name)
    assert sent.path == "/v1/messages"
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert sent.json == {
        "model": name,
        "max_tokens": 1024,
        "messages": [{"role": "user", "content": sent.json["messages"][0]["content"]}],
    }
    assert gate.record.endpoint == "chat.completions"
    assert (gate.record.usage.prompt_tokens, gate.record.usage.completion_tokens) == (331, 7)


@pytest.mark.parametrize("name", [*WHOLE, "claude-split"])
async def test_a_chats_stream_is_in_openais_words(gate: Gate, name: str) -> None:
    line = await gate.ask(chat(name, stream=True, stream_options={"include_usage": True}))
    for event in line.events:
        conforms(event, "CreateChatCompletionStreamResponse")
    assert line.events[-1]["usage"]["prompt_tokens"] == 331
    assert gate.record.usage.completion_tokens == 7
    if name == "claude-split":
        assert line.text == ODD


async def test_usage_stays_away_from_a_chat_that_did_not_ask(gate: Gate) -> None:
    assert b"usage" not in (await gate.ask(chat("claude", stream=True))).body


async def test_a_model_names_its_longest_answer(gate: Gate) -> None:
    await gate.ask(chat("sonnet"))
    assert gate.upstream.of("claude")[0].json["max_tokens"] == 77


async def test_a_chats_answer_is_cached(gate: Gate) -> None:
    await gate.ask(chat("claude"))
    assert (await gate.ask(chat("claude", stream=True)))["x-tollhouse-cache"] == "hit-exact"


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("claude-400", 400, None),
        ("claude-long", 400, "context_length_exceeded"),
        ("claude-429", 429, "rate_limit_exceeded"),
        ("claude-529", 529, "overloaded"),
        ("claude-401", 502, "upstream_error"),
        ("claude-500", 502, "upstream_error"),
        ("claude-nonsense", 502, "upstream_error"),
    ],
)
async def test_a_chats_refusals_are_in_openais_shape(gate: Gate, model: str, status: int, code: str | None) -> None:
    line = await gate.ask(chat(model))
    assert (line.status, line.error["code"]) == (status, code)


async def test_what_anthropic_cant_do_is_refused_before_it_costs(gate: Gate) -> None:
    line = await gate.ask(chat("claude", n=2))
    assert (line.status, line.error["param"], line.error["code"]) == (400, "n", "unsupported_parameter")
    assert gate.num_sent("claude") == 0


@pytest.mark.parametrize("behaviour", ["claude-cut", "claude-short", "claude-stall", "claude-breaks"])
async def test_a_chat_from_a_message_that_breaks_off(gate: Gate, behaviour: str) -> None:
    line = await gate.ask(chat(behaviour, stream=True))
    assert b"[DONE]" not in line.body
    assert b'"finish_reason":"' not in line.body
    assert b'{"error":' in line.body
    assert gate.record.status == "error"
