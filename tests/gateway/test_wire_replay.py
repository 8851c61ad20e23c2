"""A stored answer as a stream, and a stream as the answer that is stored: each the other's reverse."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.assemble import assemble
from gateway.wire.replay import pieces, replay, rewrite_identity
from gateway.wire.sse import DONE
from gateway.wire.stream import StreamReader
from tests.conformance.openai_schemas import conforms

USAGE = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris, in France"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": ""}},
    {"id": "call_3", "type": "custom", "custom": {"name": "sh", "input": "ls -l | grep some thing"}},
]
LOGPROBS = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}], "refusal": None}


def choice(content: str | None, index: int = 0, finish: str = "stop", **message: Any) -> dict[str, Any]:
    whole = {"role": "assistant", "content": content, "refusal": None} | message
    return {"index": index, "message": whole, "logprobs": None, "finish_reason": finish}


def chat(*choices: dict[str, Any]) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": "fp"}
    return json.dumps(head | {"choices": choices, "usage": USAGE}).encode()


def text(*texts: str) -> bytes:
    choices = [{"text": t, "index": i, "logprobs": None, "finish_reason": "stop"} for i, t in enumerate(texts)]
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    return json.dumps(head | {"choices": choices, "usage": USAGE}).encode()


ANSWERS = {
    "text": chat(choice("The capital of France is Paris, on the river Seine.\n\nIt has been so for a long time.  ")),
    "empty": chat(choice("")),
    "two choices": chat(choice("One answer of some length."), choice("Another, 日本語 🙂.", 1, "length")),
    "tools": chat(choice(None, finish="tool_calls", tool_calls=CALLS)),
    "text and tools": chat(choice("Let me look that up.", finish="tool_calls", tool_calls=CALLS[:1])),
    "refusal": chat(choice(None, refusal="I can't help with that, sorry.")),
    "legacy call": chat(choice(None, finish="function_call", function_call={"name": "f", "arguments": "{}"})),
    "logprobs": chat(choice("a") | {"logprobs": LOGPROBS}),
    "reasoning": chat(choice("4", reasoning_content="Two and two make four, I believe.")),
    "completion": text("Once upon a time there was a model.", ""),
}


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("include_usage", [True, False])
def test_a_stream_says_what_the_answer_says(body: bytes, include_usage: bool) -> None:
    payloads = replay(body, include_usage=include_usage)
    assert payloads[-1] == DONE
    answer = json.loads(body)
    if not include_usage:
        del answer["usage"]
    assembled = assemble(payloads, num_choices=len(answer["choices"]))
    assert assembled is not None
    assert json.loads(assembled) == answer


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in ("completion", "text and tools")])
def test_every_chunk_is_one_of_openai(name: str) -> None:
    # The schema of chunks knows function calls only.
    body = chat(choice(None, finish="tool_calls", tool_calls=CALLS[:2])) if name == "tools" else ANSWERS[name]
    for payload in replay(body, include_usage=True)[:-1]:
        conforms(payload, "CreateChatCompletionStreamResponse")


def test_the_shape_of_a_stream() -> None:
    *chunks, done = [p if p == DONE else json.loads(p) for p in replay(ANSWERS["text"], include_usage=True)]
    assert done == DONE
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    deltas = [c["choices"][0]["delta"]["content"] for c in chunks[1:-2]]
    assert len(deltas) > 3
    assert "".join(deltas) == json.loads(ANSWERS["text"])["choices"][0]["message"]["content"]
    assert chunks[-2]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], USAGE)
    assert all(c["usage"] is None for c in chunks[:-1])
    assert {c["id"] for c in chunks} == {"chatcmpl-1"}


def test_usage_comes_only_if_asked() -> None:
    assert not any(b"usage" in payload for payload in replay(ANSWERS["text"]))


def test_tool_calls_come_with_name_first_and_arguments_in_pieces() -> None:
    chunks = [json.loads(p)["choices"][0]["delta"] for p in replay(ANSWERS["tools"])[:-1]]
    calls = [delta["tool_calls"][0] for delta in chunks if "tool_calls" in delta]
    assert calls[0] == {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": ""},
    }
    assert [call["index"] for call in calls] == sorted(call["index"] for call in calls)
    assert len([call for call in calls if call["index"] == 0]) > 2


def test_parallel_tool_calls_stay_apart() -> None:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    for i in range(3):
        start = {"id": f"c{i}", "type": "function", "function": {"name": f"f{i}", "arguments": ""}}
        deltas.append({"tool_calls": [{"index": i} | start]})
    for part in ('{"a"', ":1}"):
        for i in range(3):
            nothing = {"index": 2 - i, "function": {"arguments": ""}}
            deltas.append({"tool_calls": [{"index": i, "function": {"arguments": part}}, nothing]})
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = assemble(json.dumps(chunk).encode() for chunk in chunks)
    assert body is not None
    message = conforms(body, "CreateChatCompletionResponse")["choices"][0]["message"]
    assert [(call["id"], call["function"]) for call in message["tool_calls"]] == [
        (f"c{i}", {"name": f"f{i}", "arguments": '{"a":1}'}) for i in range(3)
    ]


def _chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **rest: Any) -> bytes:
    choices = [{"index": index, "delta": delta, "finish_reason": finish}]
    return json.dumps(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices} | rest
    ).encode()


BEGIN, END = _chunk({"role": "assistant", "content": "x"}), _chunk({}, "stop")
INCOMPLETE: dict[str, list[bytes]] = {
    "nothing": [],
    "only the end mark": [DONE],
    "cut": [BEGIN],
    "cut, with an end mark": [BEGIN, DONE],
    "one of two choices": [BEGIN, _chunk({"content": "y"}, index=1), END, DONE],
    "failed": [BEGIN, b'{"error":{"message":"broken"}}'],
    "failed after the end": [BEGIN, END, b'{"error":{"message":"broken"}}'],
    "garbage": [BEGIN, b"{", END],
    "no object": [BEGIN, b"[1]", END],
    "not UTF-8": [BEGIN, b'{"x":"\xff"}', END],
    "no chat": [b'{"choices":[{"index":0,"finish_reason":"stop"}]}'],
    "odd choices": [b'{"choices":{"index":0}}'],
    "odd delta": [_chunk({}) .replace(b"{}", b"[]"), END],
    "deep": [BEGIN, b'{"x":' + b"[" * 10**5 + b"]" * 10**5 + b"}", END],
}  # fmt: skip


@pytest.mark.parametrize("payloads", INCOMPLETE.values(), ids=INCOMPLETE.keys())
def test_what_is_not_complete_is_never_stored(payloads: list[bytes]) -> None:
    assert assemble(payloads) is None


def test_all_the_choices_asked_for_must_be_there() -> None:
    assert assemble([BEGIN, END], num_choices=2) is None
    assert assemble([BEGIN, END], num_choices=1) is not None


def test_what_only_streams_have_is_left_out() -> None:
    body = assemble([_chunk({"role": "assistant", "content": "x"}, obfuscation="abc", service_tier="default"), END])
    assert body is not None
    answer = conforms(body, "CreateChatCompletionResponse")
    assert "obfuscation" not in answer
    assert "usage" not in answer
    assert answer["service_tier"] == "default"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"choices":[]}', b'{"choices":[{"message":null}]}', b'{"data":[]}']
)
def test_what_is_no_answer_is_not_replayed(body: bytes) -> None:
    with pytest.raises(ValueError, match="not an answer"):
        replay(body)


def test_a_hit_has_an_identity_of_its_own() -> None:
    body = b'{"object":"chat.completion", "id" : "old", "x":1.0,"created":5,"choices":[{"id":"inner","created":1}]}'
    new = body.replace(b'"old"', b'"new"').replace(b'"created":5', b'"created":6')
    assert rewrite_identity(body, "new", 6) == new
    assert rewrite_identity(b'{"choices":[]}', "new", 6) == b'{"choices":[]}'


TEXTS = st.text(max_size=80) | st.text(st.sampled_from(" \n\tab,.日🙂\u200d"), max_size=80)


@settings(deadline=None)
@given(TEXTS)
def test_pieces_are_the_text(said: str) -> None:
    parts = pieces(said)
    assert "".join(parts) == said
    assert all(parts)
    assert all(len(part.strip()) <= 24 for part in parts)


CALL = st.fixed_dictionaries(
    {
        "id": st.text(min_size=1),
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": st.text(min_size=1), "arguments": TEXTS}),
    }
)
MESSAGES = st.fixed_dictionaries(
    {"content": st.none() | TEXTS},
    optional={
        "tool_calls": st.lists(CALL, min_size=1, max_size=3),
        "refusal": st.none() | TEXTS,
        "reasoning_content": TEXTS,
        "annotations": st.just([]),
        "vendor": st.integers() | st.booleans() | TEXTS,
    },
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(MESSAGES, st.sampled_from(["stop", "length", "tool_calls"])), min_size=1, max_size=3))
def test_any_answer_survives_being_streamed(choices: list[tuple[dict[str, Any], str]]) -> None:
    said = [choice(finish=finish, index=i, **message) for i, (message, finish) in enumerate(choices)]
    body = chat(*said)
    payloads = replay(body, include_usage=True)
    assembled = assemble(payloads, num_choices=len(said))
    assert assembled is not None
    assert json.loads(assembled) == json.loads(body)
    reader = StreamReader(client_wants_usage=False, num_choices=len(said))
    passed = reader.feed(payloads)
    assert reader.finished
    assert passed == replay(body, include_usage=False)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_any_completion_survives_being_streamed(texts: list[str]) -> None:
    body = text(*texts)
    assembled = assemble(replay(body, include_usage=True), num_choices=len(texts))
    assert assembled is not None
    assert json.loads(assembled) == json.loads(body)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.sampled_from([BEGIN, END, DONE]), max_size=5))
def test_any_payloads_are_assembled_or_not_but_never_an_error(payloads: list[bytes]) -> None:
    body = assemble(payloads)
    assert body is None or json.loads(body)["choices"]
