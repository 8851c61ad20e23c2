"""A chat request for a provider of the Messages API."""

import json
from typing import Any

import pytest

from gateway.errors import InvalidRequestError
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.messages.chat_request import messages_request


def body(*messages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"model": "ours", "messages": messages or ({"role": "user", "content": "Hi"},)} | fields).encode()


def told(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(messages_request(parse_chat(body(*messages, **fields)), "claude", 1000))
    return request


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content} | more


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


USER = {"role": "user", "content": [text("Hi")]}


def test_a_plain_chat() -> None:
    assert told() == {"model": "claude", "max_tokens": 1000, "messages": [USER]}


def test_fields_by_their_other_names() -> None:
    request = told(
        max_completion_tokens=5, temperature=0.5, top_p=0.9, top_k=3, stop="END", stream=True, user="u1",
        stream_options={"include_usage": True}, store=True, metadata={"a": "b"}, reasoning_effort="minimal",
    )  # fmt: skip
    assert request == {
        "model": "claude",
        "max_tokens": 5,
        "messages": [USER],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "stop_sequences": ["END"],
        "stream": True,
        "metadata": {"user_id": "u1"},
        "output_config": {"effort": "low"},
    }


def test_fields_that_openai_does_not_have_go_on_as_they_came() -> None:
    raw = body().replace(b'"model"', b'"thinking": {"type": "adaptive"}, "x_new": 1.50, "model"')
    request = messages_request(parse_chat(raw), "claude", 10)
    assert b'"thinking":{"type": "adaptive"}' in request
    assert b'"x_new":1.50' in request


def test_instructions_are_gathered() -> None:
    request = told(
        said("system", "A"), said("user", "Hi"), said("developer", [text("B"), text("")]), said("user", "Go")
    )
    assert request["system"] == [text("A"), text("B")]
    assert request["messages"] == [{"role": "user", "content": [text("Hi"), text("Go")]}]


def test_turns_of_one_role_become_one() -> None:
    call = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": '{"n": 1.50}'}}
    other = {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}
    chat = parse_chat(
        body(
            said("user", "Hi"),
            said("assistant", "I look.", tool_calls=[call, other]),
            said("tool", "one", tool_call_id="functions.f:0"),
            said("tool", [text("two"), text("three")], tool_call_id="b"),
            said("user", "And?"),
        )
    )
    raw = messages_request(chat, "claude", 10)
    assert b'"input":{"n": 1.50}' in raw  # as the model wrote it
    assert json.loads(raw)["messages"] == [
        USER,
        {
            "role": "assistant",
            "content": [
                text("I look."),
                {"type": "tool_use", "id": "functions_f_0", "name": "f", "input": {"n": 1.5}},
                {"type": "tool_use", "id": "b", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "functions_f_0", "content": "one"},
                {"type": "tool_result", "tool_use_id": "b", "content": [text("two"), text("three")]},
                text("And?"),
            ],
        },
    ]


def test_parts() -> None:
    parts = [
        text("Look") | {"cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO="}},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
    ]
    (message,) = told(said("user", parts))["messages"]
    assert message["content"] == [
        text("Look") | {"cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO="}},
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
            "title": "a.pdf",
        },
    ]


FUNCTION = {"type": "function", "function": {"name": "f", "description": "d", "strict": True}}


def test_tools() -> None:
    tools = [FUNCTION, {"type": "web_search_20250305", "name": "web_search"}]
    request = told(tools=tools, tool_choice="auto")
    assert "tool_choice" not in request
    assert request["tools"] == [
        {"name": "f", "input_schema": {"type": "object", "properties": {}}, "description": "d", "strict": True},
        tools[1],  # Anthropic's own
    ]


@pytest.mark.parametrize(
    ("choice", "parallel", "wanted"),
    [
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"type": "function", "function": {"name": "f"}},
            False,
            {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_the_choice_of_tools(choice: Any, parallel: bool | None, wanted: dict[str, Any]) -> None:
    request = told(tools=[FUNCTION], tool_choice=choice, parallel_tool_calls=parallel)
    assert request["tool_choice"] == wanted


def test_structured_output() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    named = {"name": "x", "schema": schema, "strict": True}
    request = told(response_format={"type": "json_schema", "json_schema": named})
    assert request["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert "output_config" not in told(response_format={"type": "text"})


@pytest.mark.parametrize(
    "fields",
    [
        *({"n": 2}, {"logprobs": True}, {"logit_bias": {"1": 2}}, {"seed": 1}, {"frequency_penalty": 0.5}),
        *({"presence_penalty": -1}, {"response_format": {"type": "json_object"}}, {"functions": [{"name": "f"}]}),
        *({"modalities": ["text", "audio"]}, {"verbosity": "low"}, {"web_search_options": {}}),
    ],
)
def test_what_the_provider_cant_do_is_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        told(**fields)
    assert refused.value.param in fields
    assert refused.value.code == "unsupported_parameter"


@pytest.mark.parametrize(
    "fields",
    [
        *({"n": 1}, {"logprobs": False}, {"logit_bias": {}}, {"frequency_penalty": 0}, {"presence_penalty": 0.0}),
        *({"seed": None}, {"modalities": ["text"]}, {"verbosity": "medium"}, {"n": None}),
    ],
)
def test_what_asks_for_nothing_harms_nobody(fields: dict[str, Any]) -> None:
    assert told(**fields) == told()


@pytest.mark.parametrize("config", ["high", [1], 7])
def test_an_output_config_that_is_none(config: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        told(output_config=config)
    assert refused.value.param == "output_config"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (said("user", [{"type": "input_audio", "input_audio": {}}]), "messages[0].content[0]"),
        (said("user", [{"type": "file", "file": {"file_id": "f"}}]), "messages[0].content[0]"),
        (
            said("user", [{"type": "image_url", "image_url": {"url": "ftp://a"}}]),
            "messages[0].content[0].image_url.url",
        ),
        (said("function", "x", name="f"), "messages[0]"),
        (
            said("assistant", None, tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "{"}}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            said("assistant", None, tool_calls=[{"id": "a", "function": {"name": "f", "arguments": '{"a":' * 10**5}}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            said("assistant", None, tool_calls=[{"id": "a", "type": "custom", "custom": {}}]),
            "messages[0].tool_calls[0]",
        ),
    ],
)
def test_messages_that_it_cant_take(message: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        told(message)
    assert refused.value.param == param


def test_only_chats() -> None:
    with pytest.raises(InvalidRequestError):
        messages_request(parse_completion(b'{"model":"m","prompt":"x"}'), "claude", 10)
