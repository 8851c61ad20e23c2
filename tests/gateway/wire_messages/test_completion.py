"""A provider's message as a chat completion, whole and streamed."""

import json
from typing import Any

import msgspec
import pytest

from gateway.wire.assemble import assemble
from gateway.wire.messages.completion import CompletionChunks, chat_completion
from gateway.wire.messages.errors import openai_error
from gateway.wire.sse import DONE
from tests.conformance.openai_schemas import conforms
from tests.faults.anthropic_behaviours import WHOLE, events, failure, message, text


def completed(whole: dict[str, Any]) -> dict[str, Any]:
    completion: dict[str, Any] = conforms(chat_completion(json.dumps(whole).encode()), "CreateChatCompletionResponse")
    return completion


def chunks(told: list[dict[str, Any]]) -> list[bytes]:
    reader = CompletionChunks(null_usage=True)
    return [chunk for event in told for chunk in reader.feed(json.dumps(event).encode())]


@pytest.mark.parametrize("name", WHOLE)
def test_a_stream_adds_up_to_the_whole_and_each_chunk_is_as_openai_has_it(name: str) -> None:
    *payloads, done = chunks(events(WHOLE[name]))
    assert done == DONE
    for payload in payloads:
        conforms(payload, "CreateChatCompletionStreamResponse")
    assembled = json.loads(assemble(payloads) or b"")
    whole = completed(WHOLE[name])
    assert assembled["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    wanted = whole["choices"][0]["message"]
    assert assembled["choices"][0]["message"] | {"content": wanted["content"]} == wanted
    assert (assembled["choices"][0]["message"]["content"] or "") == (wanted["content"] or "")
    assert assembled["usage"] == whole["usage"]


def test_parallel_calls() -> None:
    (choice,) = completed(WHOLE["claude-tools"])["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    calls = choice["message"]["tool_calls"]
    assert [(call["id"], json.loads(call["function"]["arguments"])["city"]) for call in calls] == [
        ("toolu_1", "Paris"),
        ("toolu_2", "Lima"),
    ]


def test_usage_counts_what_was_cached_as_part_of_the_prompt() -> None:
    assert completed(WHOLE["claude"])["usage"] == {
        "prompt_tokens": 331,
        "completion_tokens": 7,
        "total_tokens": 338,
        "prompt_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 20},
    }


def test_thinking_tokens_are_reasoning_tokens() -> None:
    usage = {"input_tokens": 1, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 5}}
    told = completed(message(text("x"), usage=usage))["usage"]
    assert told["completion_tokens_details"] == {"reasoning_tokens": 5}
    assert told["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "length"),
        ("something_new", "stop"),
    ],
)
def test_why_it_ended(reason: str, finish: str) -> None:
    assert completed(message(text("x"), stop_reason=reason))["choices"][0]["finish_reason"] == finish


def test_a_thought_is_told_beside_the_answer() -> None:
    told = completed(WHOLE["claude-thinks"])["choices"][0]["message"]
    assert (told["reasoning_content"], told["content"]) == ("Hm.", "Yes.")


def test_blocks_that_a_chat_has_no_place_for_are_left_out() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}}
    assert completed(message(search, text("Found.")))["choices"][0]["message"]["content"] == "Found."


def test_a_call_without_arguments_is_told_with_none() -> None:
    *payloads, _ = chunks(events(WHOLE["claude-no-arguments"]))
    (call,) = json.loads(assemble(payloads) or b"")["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"hello":1}', json.dumps(failure("api_error", "x")).encode(), b"[" * 9999]
)
def test_what_is_no_message(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        chat_completion(body)


def test_what_is_no_event() -> None:
    with pytest.raises(msgspec.DecodeError):
        CompletionChunks(null_usage=False).feed(b"{")
    assert CompletionChunks(null_usage=False).feed(b'{"type":"something_new"}') == []


def test_an_error_in_the_stream_is_one_for_a_chats_client() -> None:
    (payload,) = CompletionChunks(null_usage=False).feed(json.dumps(failure("overloaded_error", "Overloaded")).encode())
    assert json.loads(payload)["error"]["code"] == "overloaded"


@pytest.mark.parametrize(
    ("kind", "said", "code"),
    [
        ("invalid_request_error", "messages: at least one", None),
        ("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", "context_length_exceeded"),
        ("rate_limit_error", "slow down", "rate_limit_exceeded"),
        ("not_found_error", "model: x", "model_not_found"),
        ("something_new", "x", None),
    ],
)
def test_errors_in_openais_shape(kind: str, said: str, code: str | None) -> None:
    error = json.loads(openai_error(json.dumps(failure(kind, said)).encode()))["error"]
    assert (error["message"], error["code"], error["param"]) == (said, code, None)
    assert json.loads(openai_error(b"<html>"))["error"]["type"] == "server_error"
