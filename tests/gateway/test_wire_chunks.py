"""The chunks of a stream are what OpenAI's schemas say, and add up to whole answers."""

import json

import pytest

from gateway.wire.assemble import assemble
from gateway.wire.chunks import ChatChunks, TextChunks
from gateway.wire.logprobs import TextLogprobs, TokenLogprob, chat_logprobs
from gateway.wire.usage import Usage
from tests.conformance.openai_schemas import conforms

USAGE = Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1)
TEXT = 'He said: "日本語 🙂\n\\u0000"\x00\x7f'


@pytest.mark.parametrize("null_usage", [True, False])
def test_chat_chunks(null_usage: bool) -> None:
    chunks = ChatChunks("chatcmpl-1", 5, 'm"m', null_usage=null_usage)
    payloads = [*chunks.opening(3), chunks.text(3, TEXT), chunks.finish(3, "stop")]
    decoded = [conforms(payload, "CreateChatCompletionStreamResponse") for payload in payloads]
    assert [c["choices"][0]["index"] for c in decoded] == [3, 3, 3]
    assert [c["choices"][0]["delta"] for c in decoded] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": TEXT},
        {},
    ]
    assert [c["choices"][0]["finish_reason"] for c in decoded] == [None, None, "stop"]
    assert {c["model"] for c in decoded} == {'m"m'}
    assert all(("usage" in c) == null_usage and c.get("usage") is None for c in decoded)
    last = conforms(chunks.usage(USAGE), "CreateChatCompletionStreamResponse")
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 2)


def test_text_chunks() -> None:
    chunks = TextChunks("cmpl-1", 5, "m", null_usage=False)
    assert chunks.opening(0) == []
    said, end, usage = (json.loads(c) for c in (chunks.text(1, TEXT), chunks.finish(1, "length"), chunks.usage(USAGE)))
    assert said["choices"] == [{"index": 1, "text": TEXT, "logprobs": None, "finish_reason": None}]
    # OpenAI has no schema of its own for text chunks: the last one is like a whole answer.
    conforms(end, "CreateCompletionResponse")
    assert end["choices"][0]["finish_reason"] == "length"
    assert conforms(usage, "CreateCompletionResponse")["choices"] == []


def test_chunks_with_calls_add_up() -> None:
    chunks = ChatChunks("chatcmpl-1", 5, "m", null_usage=False)
    payloads = [
        *chunks.opening(0),
        chunks.call(0, 0, "call_1", "f"),
        chunks.arguments(0, 0, '{"a"'),
        chunks.arguments(0, 0, ": 1}", chat_logprobs([TokenLogprob(b"1", -0.5)])),
        chunks.call(0, 1, "call_2", "g"),
        chunks.finish(0, "tool_calls"),
        chunks.usage(USAGE),
    ]
    for payload in payloads:
        conforms(payload, "CreateChatCompletionStreamResponse")
    answer = conforms(assemble(payloads) or b"null", "CreateChatCompletionResponse")
    calls = answer["choices"][0]["message"]["tool_calls"]
    assert [call["id"] for call in calls] == ["call_1", "call_2"]
    assert calls[0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["choices"][0]["logprobs"]["content"][0]["token"] == "1"


def test_logprobs_of_text_chunks_add_up() -> None:
    chunks, logprobs = TextChunks("cmpl-1", 5, "m", null_usage=False), TextLogprobs()
    first = logprobs.take([TokenLogprob("é".encode(), -1.0), TokenLogprob(b"<eos>", -2.0)])
    second = logprobs.take([TokenLogprob(b"!", -3.0)])
    payloads = [chunks.text(0, "é<eos>", first), chunks.text(0, "!", second), chunks.finish(0, "stop")]
    answer = conforms(assemble(payloads) or b"null", "CreateCompletionResponse")
    assert answer["choices"][0]["logprobs"]["text_offset"] == [0, 1, 6]
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [-1.0, -2.0, -3.0]
