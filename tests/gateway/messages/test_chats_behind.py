"""OpenAI's clients in front of a provider of Anthropic's API, through the whole gateway."""

import pytest

from tests.conformance.openai_schemas import conforms
from tests.faults.anthropic_behaviours import ODD, WHOLE, failure
from tests.support.in_process import Gate, chat

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize(
    ("name", "code"),
    [("claude-nonsense", "no_answer"), ("claude-empty", "no_answer"), ("claude-says-no", "error_in_answer")],
)
async def test_what_is_no_message_is_not_charged(gate: Gate, name: str, code: str) -> None:
    gate.upstream.on(
        "claude-empty", lambda wire: wire.json(b"", "204 No Content", {"Content-Length": "", "Content-Type": ""})
    )
    gate.upstream.on("claude-says-no", lambda wire: wire.json(failure("overloaded_error", "Overloaded")))
    line = await gate.ask(chat(name))
    (attempt,) = gate.record.attempts
    assert (line.status, attempt.status, attempt.error_code, attempt.cost_nanousd) == (502, "error", code, 0)


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
