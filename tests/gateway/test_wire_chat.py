"""What OpenAI would refuse is refused with the field named; everything else is read, and kept byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequestError
from gateway.wire.chat import parse_chat
from tests.conformance.openai_schemas import conforms

USER = {"role": "user", "content": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


def body(**fields: Any) -> bytes:
    whole = {"model": "m", "messages": [USER]} | fields
    return json.dumps({name: value for name, value in whole.items() if value is not ...}).encode()


def refusal(raw: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse_chat(raw)
    assert caught.value.status == 400
    conforms(caught.value.encode(), "ErrorResponse")
    return caught.value


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"model": ...}, "model"),
    ({"model": ""}, "model"),
    ({"model": None}, "model"),
    ({"model": 7}, "model"),
    ({"model": "a\r\nx-evil: 1"}, "model"),
    ({"model": "m" * 300}, "model"),
    ({"messages": ...}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": {"0": USER}}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [USER, {}]}, "messages[1].role"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": 1, "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "system", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": 1}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "messages[0].content[0].text"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].image_url.url",
    ),
    ({"messages": [{"role": "tool", "content": "1"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "function", "content": "1"}]}, "messages[0].name"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "messages[0].tool_calls[0].function"),
    ({"messages": [{"role": "assistant", "tool_calls": [CALL | {"id": 1}]}]}, "messages[0].tool_calls[0].id"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": "10"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"max_completion_tokens": -5}, "max_completion_tokens"),
    ({"temperature": 2.01}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_p": -1}, "top_p"),
    ({"top_k": "many"}, "top_k"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": 2.0}, "n"),
    ({"seed": 2**63}, "seed"),
    ({"seed": "s"}, "seed"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": []}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a", 5]}, "stop[1]"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": False, "stream_options": {}}, "stream_options"),
    ({"stream": True, "stream_options": []}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"frequency_penalty": 3}, "frequency_penalty"),
    ({"presence_penalty": "x"}, "presence_penalty"),
    ({"logit_bias": []}, "logit_bias"),
    ({"logit_bias": {"1": "x"}}, "logit_bias[...]"),
    ({"logit_bias": {"1": 101}}, "logit_bias[...]"),
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": 5}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"tools": {}}, "tools"),
    ({"tools": [{}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tools": [], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"parallel_tool_calls": True}, "parallel_tool_calls"),
    ({"functions": [{}]}, "functions[0].name"),
    ({"function_call": "auto"}, "function_call"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
    ({"user": 5}, "user"),
    ({"metadata": {"a": 1}}, "metadata[...]"),
    ({"modalities": "audio"}, "modalities"),
]


@pytest.mark.parametrize(("fields", "param"), FAULTS, ids=lambda value: str(value)[:60])
def test_a_fault_is_refused_and_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(body(**fields))
    assert error.param == param
    assert param.partition("[")[0].split(".")[-1] in error.message or param in error.message


MALFORMED = {
    "nothing": b"",
    "cut": b'{"model":"m","messages":[',
    "an array": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "not UTF-8": b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}',
    "not UTF-8 in a field nobody reads": b'{"model":"m","messages":[{"role":"user","content":"x"}],"x":"\xff"}',
    "UTF-16": '{"model":"m"}'.encode("utf-16"),
    "BOM": b'\xef\xbb\xbf{"model":"m","messages":[{"role":"user","content":"x"}]}',
    "high surrogate": b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
    "low surrogate": b'{"model":"m","messages":[{"role":"user","content":"\\udc00 x"}]}',
    "surrogate nobody reads": b'{"model":"m","messages":[{"role":"user","content":"x"}],"x":["\\ud83d"]}',
    "NaN": b'{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":NaN}',
    "Infinity": b'{"model":"m","messages":[{"role":"user","content":"x"}],"top_p":Infinity}',
    "too large a number": b'{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":1e999}',
    "too large a number nobody reads": b'{"model":"m","messages":[{"role":"user","content":"x"}],"x":1e999}',
    "endless integer": b'{"model":"m","messages":[{"role":"user","content":"x"}],"x":1' + b"0" * 5000 + b"}",
    "raw control character": b'{"model":"m","messages":[{"role":"user","content":"a\nb"}]}',
    "trailing comma": b'{"model":"m","messages":[{"role":"user","content":"x"}],}',
    "two values": b'{"model":"m","messages":[{"role":"user","content":"x"}]}{}',
    "deep array": b'{"model":"m","messages":[{"role":"user","content":"x"}],"x":' + b"[" * 10**5 + b"]" * 10**5 + b"}",
    "deep object": b'{"model":"m","messages":' + b'{"a":' * 10**5 + b"1" + b"}" * 10**5 + b"}",
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    refusal(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"cheap","model":"dear","messages":[{"role":"user","content":"x"}]}',
        b'{"model":"m", "messages":[{"role":"user","content":"x"}], "\\u006dodel":"m"}',
        b'{ "model" : "m", "messages":[{"role":"user","content":"x"}], "model" : "m" }',
    ],
)
def test_a_key_that_comes_twice_is_refused(raw: bytes) -> None:
    # Two readers may take two different values: what is authorised here must be what runs there.
    assert refusal(raw).param == "model"


def test_everything_of_use_is_read() -> None:
    inference = parse_chat(
        body(
            messages=[{"role": "system", "content": "s"}, USER],
            max_tokens=10, max_completion_tokens=20, temperature=0, top_p=0.5, top_k=7, seed=-3, n=2, stop="END",
            stream=True, stream_options={"include_usage": True}, ignore_eos=True, user="u",
        )
    )  # fmt: skip
    assert inference.endpoint == "chat.completions"
    assert [(message.role, message.text) for message in inference.messages] == [("system", "s"), ("user", "hi")]
    assert (inference.max_tokens, inference.temperature, inference.top_p, inference.top_k) == (20, 0.0, 0.5, 7)
    assert (inference.seed, inference.n, inference.stop, inference.user) == (-3, 2, ("END",), "u")
    assert inference.stream
    assert inference.include_usage
    assert inference.ignore_eos
    assert inference.last_user_text == "hi"


def test_null_is_as_good_as_absent() -> None:
    optional = (
        "temperature", "top_p", "n", "max_tokens", "max_completion_tokens", "stop", "stream", "stream_options", "seed",
        "logprobs", "top_logprobs", "logit_bias", "user", "metadata", "modalities", "audio", "frequency_penalty",
    )  # fmt: skip
    inference = parse_chat(body(**dict.fromkeys(optional)))
    assert (inference.n, inference.stream, inference.max_tokens, inference.stop) == (1, False, None, ())
    assert inference.needs == frozenset()


def test_unknown_fields_are_kept_as_they_came() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"x","weight":1}],"chat_template_kwargs":{"a" : 1.0}}'
    inference = parse_chat(raw)
    assert inference.raw is raw
    assert bytes(inference.fields["chat_template_kwargs"]) == b'{"a" : 1.0}'
    assert list(inference.fields) == ["model", "messages", "chat_template_kwargs"]


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({}, set()),
        ({"tools": [TOOL]}, {"tools"}),
        ({"tools": []}, set()),
        ({"tool_choice": "none"}, set()),
        ({"functions": [{"name": "f"}]}, {"tools"}),
        ({"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]}, {"tools"}),
        ({"messages": [USER, {"role": "tool", "content": "1", "tool_call_id": "call_1"}]}, {"tools"}),
        ({"response_format": {"type": "text"}}, set()),
        ({"response_format": {"type": "json_object"}}, {"json_object"}),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}, {"json_schema"}),
        ({"logprobs": True, "top_logprobs": 2}, {"logprobs"}),
        ({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, {"audio"}),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            {"images"},
        ),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                {"type": "file", "file": {"file_id": "f"}},
                {"type": "text", "text": "x"},
            ]}]},
            {"audio", "files"},
        ),
    ],
)  # fmt: skip
def test_what_a_request_needs_of_its_model(fields: dict[str, Any], needs: set[str]) -> None:
    raw = body(**fields)
    conforms(raw, "CreateChatCompletionRequest")
    assert parse_chat(raw).needs == needs


def test_text_parts_are_read_in_order() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert parse_chat(body(messages=[{"role": "user", "content": parts}])).last_user_text == "one\ntwo"


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(raw: bytes) -> None:
    _parse_or_refuse(raw)


NAMES = sorted({name for fields, _ in FAULTS for name in fields} | {"tool_choice", "audio", "x", "reasoning_effort"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["user", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "name", "id", "function", ""]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4), st.booleans())
def test_any_object_is_parsed_or_refused(fields: dict[str, Any], complete: bool) -> None:
    _parse_or_refuse(json.dumps(({"model": "m", "messages": [USER]} if complete else {}) | fields).encode())


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3))
def test_any_messages_are_parsed_or_refused(messages: list[Any]) -> None:
    _parse_or_refuse(json.dumps({"model": "m", "messages": messages}).encode())


def _parse_or_refuse(raw: bytes) -> None:
    try:
        parse_chat(raw)
    except InvalidRequestError as error:
        conforms(error.encode(), "ErrorResponse")


MANY = {
    "objects and lists": b",".join([b"{}"] * 600_000),
    "keys and texts": b"{" + b",".join(b'"%d":1' % i for i in range(300_000)) + b"}",
    "values": b",".join([b"1"] * 2_100_000),
}


@pytest.mark.parametrize("what", MANY)
def test_a_body_of_millions_of_values_is_refused_before_it_is_read(what: str) -> None:
    with pytest.raises(InvalidRequestError, match=what):
        parse_chat(b'{"model":"m","messages":[],"x":[' + MANY[what] + b"]}")


def test_a_long_text_of_quotes_is_one_text() -> None:
    text = '"a", {} ' * 200_000
    assert parse_chat(body(messages=[{"role": "user", "content": text}])).last_user_text == text
