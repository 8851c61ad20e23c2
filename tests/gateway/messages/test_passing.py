"""Anthropic's clients in front of a provider of their own API: what goes through, and what is read of it."""

import json
from typing import Any

import pytest

from gateway.wire.messages.dialect import MessagesDialect
from tests.faults.anthropic_behaviours import ODD, WHOLE, events, framed
from tests.gateway.messages.conftest import ask, told
from tests.support.in_process import Gate, Line

pytestmark = pytest.mark.anyio


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
