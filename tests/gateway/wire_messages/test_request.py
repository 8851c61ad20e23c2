"""A client's request of the Messages API as a chat: what every backend can take, what is lost, what is refused."""

import json
from typing import Any

import pytest

from gateway.errors import InvalidRequestError
from gateway.wire.inference import Inference
from gateway.wire.messages.request import parse_messages

PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def asked(*turns: Any, **fields: Any) -> bytes:
    messages = [{"role": "user", "content": turn} if not isinstance(turn, dict) else turn for turn in turns]
    return json.dumps({"model": "m", "max_tokens": 50, "messages": messages or ["x"]} | fields).encode()


def parse(*turns: Any, **fields: Any) -> Inference:
    return parse_messages(asked(*turns, **fields))


def chat(*turns: Any, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(parse(*turns, **fields).raw)
    return body


def turn(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def test_a_plain_request() -> None:
    assert chat("Hi", system="Be brief.") == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "max_completion_tokens": 50,
    }


def test_what_is_typed_is_what_the_chat_says() -> None:
    inference = parse(
        "Hi", temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["a", "b"], metadata={"user_id": "u1"}, stream=True
    )
    body = json.loads(inference.raw)
    assert (inference.endpoint, inference.asked_endpoint) == ("chat.completions", "messages")
    assert (inference.max_tokens, inference.temperature, inference.top_p, inference.top_k) == (50, 0.5, 0.9, 5)
    assert (inference.stop, inference.user) == (("a", "b"), "u1")
    assert body["stop"] == ["a", "b"]
    assert body["user"] == "u1"
    assert body["stream_options"] == {"include_usage": True}
    assert inference.stream
    assert inference.include_usage
    assert {name: json.loads(bytes(value)) for name, value in inference.fields.items()} == body
    assert inference.messages[0].content == "Hi"


def test_the_clients_own_request_stays_beside_it() -> None:
    raw = b'{ "model":"m","max_tokens":1.0e0,"messages":[{"role":"user","content":"\\u00e9"}],"x_new":[1.50] }'
    with pytest.raises(InvalidRequestError):
        parse_messages(raw)  # a float is no number of tokens
    raw = raw.replace(b"1.0e0", b"1")
    inference = parse_messages(raw, (("anthropic-beta", "b1"),))
    assert inference.native is not None
    assert inference.native.raw == raw
    assert inference.native.headers == (("anthropic-beta", "b1"),)
    assert json.loads(inference.raw)["x_new"] == [1.5]  # nobody here knows it, so it goes on


@pytest.mark.parametrize(
    "fields", [{"n": 100}, {"max_completion_tokens": 10**6}, {"stream_options": {"include_usage": False}}, {"N": 2}]
)
def test_a_chats_own_words_are_no_way_past_the_limits(fields: dict[str, Any]) -> None:
    """They would go on as fields that nobody knows, and say more than was reserved for."""
    with pytest.raises(InvalidRequestError, match="Unsupported parameter") as caught:
        parse("Hi", stream=True, **fields)
    assert [caught.value.param] == list(fields)


def test_blocks_of_a_user() -> None:
    (message,) = chat(turn("user", text("What is this?"), {"type": "image", "source": PIXEL}))["messages"]
    assert message["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]
    source = {"type": "url", "url": "https://a.example/b.png"}
    inference = parse(turn("user", {"type": "image", "source": source}))
    assert inference.messages[0].content == [{"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}]
    assert inference.needs == {"images"}


def test_one_text_is_a_string_so_that_the_cache_can_compare_it() -> None:
    block = text("Hi") | {"cache_control": {"type": "ephemeral"}}
    assert chat(turn("user", block))["messages"] == [{"role": "user", "content": "Hi"}]


def test_documents() -> None:
    inference = parse(turn("user", {"type": "document", "source": {"type": "text", "data": "words"}}, text("Sum up.")))
    assert inference.messages[0].text == "words\nSum up."
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    inference = parse(turn("user", {"type": "document", "title": "a.pdf", "source": pdf}))
    assert inference.messages[0].content == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}}
    ]
    assert inference.needs == {"files"}


@pytest.mark.parametrize("citations", ["yes", [1], 7])
def test_citations_that_are_none(citations: Any) -> None:
    block = {"type": "document", "source": {"type": "text", "data": "words"}, "citations": citations}
    with pytest.raises(InvalidRequestError) as caught:
        parse(turn("user", block))
    assert caught.value.param == "messages[0].content[0].citations"


def test_a_round_of_tools() -> None:
    inference = parse(
        "What is the weather?",
        turn(
            "assistant",
            text("I look."),
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}},
            {"type": "tool_use", "id": "t2", "name": "weather", "input": {}},
        ),
        turn(
            "user",
            {"type": "tool_result", "tool_use_id": "t1", "content": "Sunny"},
            {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": [text("No such"), text("city")]},
            text("And tomorrow?"),
        ),
    )
    body = json.loads(inference.raw)
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}},
                {"id": "t2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "Sunny"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: No such\ncity"},
        {"role": "user", "content": "And tomorrow?"},
    ]
    assert inference.needs == {"tools"}


def test_an_image_in_a_result_follows_it_and_stays_in_front_of_what_the_user_says() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "image", "source": PIXEL}]}
    tool, user = chat(turn("user", text("Look."), result))["messages"]
    assert tool["role"] == "tool"
    assert "follows" in tool["content"]
    assert [part["type"] for part in user["content"]] == ["text", "image_url"]


def test_a_result_without_content() -> None:
    (message,) = chat(turn("user", {"type": "tool_result", "tool_use_id": "t1"}))["messages"]
    assert message == {"role": "tool", "tool_call_id": "t1", "content": ""}


def test_thoughts_go_back_to_whom_they_came_from() -> None:
    ours = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    signed = {"type": "thinking", "thinking": "Secret.", "signature": "c2ln"}
    sealed = {"type": "redacted_thinking", "data": "eHg="}
    inference = parse("Hi", turn("assistant", ours, signed, sealed, text("Yes.")), "Sure?")
    message = json.loads(inference.raw)["messages"][1]
    assert message == {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
    assert inference.native is not None
    assert not inference.native.lost


TOOL = {"name": "weather", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "x"}}


def test_tools() -> None:
    function = {"name": "weather", "description": "d", "parameters": {"type": "object"}}
    assert chat("Hi", tools=[TOOL])["tools"] == [{"type": "function", "function": function}]
    assert chat("Hi", tools=[TOOL | {"type": "custom", "strict": True}])["tools"][0]["function"]["strict"]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
            {
                "tool_choice": {"type": "function", "function": {"name": "weather"}},
                "parallel_tool_calls": False,
            },
        ),
    ],
)
def test_the_choice_of_tools(choice: dict[str, Any], said: dict[str, Any]) -> None:
    body = chat("Hi", tools=[TOOL], tool_choice=choice)
    assert {name: body[name] for name in ("tool_choice", "parallel_tool_calls") if name in body} == said
    assert "tool_choice" not in chat("Hi", tool_choice=choice)  # there is nothing to choose from


def test_structured_output_and_effort() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    config = {"effort": "max", "format": {"type": "json_schema", "schema": schema}}
    inference = parse("Hi", output_config=config)
    body = json.loads(inference.raw)
    assert body["reasoning_effort"] == "xhigh"
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": schema, "strict": True}
    assert inference.needs == {"json_schema"}


def test_instructions_in_blocks_and_in_the_middle() -> None:
    body = chat(
        "Hi", turn("assistant", text("Yes?")), turn("system", text("Be brief.")), "Go", system=[text("A"), text("B")]
    )
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("system", "A\nB"),
        ("user", "Hi"),
        ("assistant", "Yes?"),
        ("system", "Be brief."),
        ("user", "Go"),
    ]


@pytest.mark.parametrize(
    ("turns", "fields", "what"),
    [
        (["Hi"], {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
        (["Hi"], {"mcp_servers": [{"url": "https://a.example"}]}, "mcp_servers"),
        (["Hi"], {"container": "c1"}, "container"),
        (["Hi"], {"max_tokens": 0}, "max_tokens"),
        ([turn("user", {"type": "search_result"})], {}, "search_result"),
        ([turn("user", {"type": "image", "source": {"type": "file", "file_id": "f"}})], {}, "file"),
        ([turn("user", {"type": "document", "source": {"type": "url", "url": "https://a"}})], {}, "url"),
        (["Hi", turn("assistant", {"type": "server_tool_use", "id": "s"}), "Go"], {}, "server_tool_use"),
        (["Hi", turn("assistant", text("The answer is ("))], {}, "assistant"),
        (
            [
                turn(
                    "user",
                    {"type": "document", "citations": {"enabled": True}, "source": {"type": "text", "data": "x"}},
                )
            ],
            {},
            "citations",
        ),
    ],
)
def test_what_a_chat_cant_say_is_named(turns: list[Any], fields: dict[str, Any], what: str) -> None:
    inference = parse(*turns, **fields)
    assert inference.native is not None
    (lost,) = inference.native.lost
    assert what in lost
    assert "messages" in inference.needs  # so that `auto` finds a model that can


@pytest.mark.parametrize("name", ["thinking", "service_tier", "cache_control", "context_management"])
def test_what_changes_no_answer_is_left_out(name: str) -> None:
    inference = parse("Hi", **{name: {"type": "x"}})
    assert name not in json.loads(inference.raw)
    assert inference.native is not None
    assert not inference.native.lost


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (asked("Hi").replace(b'"max_tokens": 50, ', b""), "max_tokens"),
        (asked("Hi", max_tokens="5"), "max_tokens"),
        (asked("Hi", temperature=1.5), "temperature"),
        (asked("Hi").replace(b'"model"', b'"modell"'), "model"),
        (asked(turn("user")), "messages[0].content"),
        (asked(turn("user", {"text": "x"})), "messages[0].content[0].type"),
        (asked(turn("user", {"type": "text"})), "messages[0].content[0].text"),
        (
            asked(turn("user", {"type": "image", "source": {"type": "base64"}})),
            "messages[0].content[0].source.media_type",
        ),
        (asked(turn("user", {"type": "tool_result"})), "messages[0].content[0].tool_use_id"),
        (asked(turn("robot", text("x"))), "messages[0].role"),
        (
            asked("Hi", turn("assistant", {"type": "tool_use", "id": "a", "name": "b"}), "x"),
            "messages[1].content[0].input",
        ),
        (asked("Hi", tools=[{"name": "a"}]), "tools[0].input_schema"),
        (asked("Hi", tools=[TOOL], tool_choice={"type": "every"}), "tool_choice.type"),
        (asked("Hi", output_config={"format": {"type": "xml"}}), "output_config.format.type"),
        (asked("Hi").replace(b'"messages"', b'"message"'), "messages"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(raw: bytes, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_messages(raw)
    assert refused.value.param == param


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"model": "\xff"}', b"[" * 100_000])
def test_no_json_is_no_accident(raw: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        parse_messages(raw)


def test_counting_needs_no_max_tokens() -> None:
    assert parse_messages(asked("Hi").replace(b'"max_tokens": 50, ', b""), counting=True).max_tokens is None
