"""Requests of the Responses API as chats: every field finds its place, what makes no sense is refused by its name."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequestError
from gateway.wire.responses_api.chat_request import chat_inference
from gateway.wire.responses_api.request import parse_create
from gateway.wire.responses_api.voice import ResponsesVoice
from tests.conformance.openai_schemas import conforms
from tests.faults.misbehaviours import completion
from tests.support.responses_api import ID, TOOL, create

CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def chat(**fields: Any) -> dict[str, Any]:
    """The chat request that a request becomes."""
    creation = create(**fields)
    body: dict[str, Any] = json.loads(chat_inference(creation, creation.items).raw)
    return conforms(body, "CreateChatCompletionRequest")


def messages(*items: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat(input=list(items), **fields)["messages"]
    return found


def refused(**fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        chat(**fields)
    return caught.value


def part(content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [content]}


def test_a_text_is_a_users_message() -> None:
    assert chat() == {"model": "m", "messages": [{"role": "user", "content": "Where is the harbour?"}]}


def test_instructions_come_first() -> None:
    assert chat(instructions="Be brief.")["messages"][0] == {"role": "system", "content": "Be brief."}


def test_every_parameter_finds_its_place() -> None:
    schema = {"type": "object"}
    body = chat(
        max_output_tokens=32,
        temperature=0.5,
        top_p=0.25,
        top_logprobs=2,
        user="u",
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}, "verbosity": "low"},
        tools=[TOOL | {"strict": True, "description": "d"}],
        tool_choice={"type": "function", "name": "weather"},
        parallel_tool_calls=False,
        stream=True,
        metadata={"a": "b"},
        truncation="auto",
        seed=7,
    )
    del body["messages"]
    function = {"name": "weather", "description": "d", "parameters": TOOL["parameters"], "strict": True}
    assert body == {
        "model": "m",
        "max_completion_tokens": 32,
        "temperature": 0.5,
        "top_p": 0.25,
        "logprobs": True,
        "top_logprobs": 2,
        "user": "u",
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}},
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 7,
    }


def test_allowed_tools() -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
    named = [{"type": "function", "function": {"name": "weather"}}]
    told = chat(tools=[TOOL], tool_choice=choice)["tool_choice"]
    assert told == {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": named}}


def test_what_says_how_to_call_goes_only_beside_tools() -> None:
    assert "tool_choice" not in chat(tool_choice="auto", parallel_tool_calls=True)


def test_fields_nobody_knows_go_on_as_they_came() -> None:
    raw = b'{"model":"m","input":"x","x_vendor":[1.50],"temperature":1.0}'
    creation = parse_create(raw, ID)
    inference = chat_inference(creation, creation.items)
    assert b'"x_vendor":[1.50]' in inference.raw
    assert b'"temperature":1.0' in inference.raw
    assert inference.asked_endpoint == "responses"


def test_parts_of_all_kinds() -> None:
    image, file = "data:image/png;base64,AA==", "data:application/pdf;base64,AA=="
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": image, "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": file},
    ]
    assert messages({"role": "user", "content": content})[0]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": image, "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": file}},
    ]


def test_a_round_of_tools() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]}
    second = CALL | {"call_id": "c2"}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    found = messages(
        {"role": "user", "content": "?"}, reasoning, said, CALL, second, RESULT, RESULT | {"call_id": "c2"}
    )
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool"]
    assert found[1]["content"] == "Let me look."
    assert [call["id"] for call in found[1]["tool_calls"]] == ["c1", "c2"]
    assert found[3] == {"role": "tool", "tool_call_id": "c2", "content": "rain"}


def test_calls_without_words_and_words_that_refuse() -> None:
    assert messages(CALL, RESULT)[0]["content"] is None
    refusal = [{"type": "refusal", "refusal": "No."}]
    assert messages({"role": "assistant", "content": refusal})[0]["content"] == refusal


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": []}]}, "input[0].content"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"input": [part({"type": "text", "text": "x"})]}, "input[0].content[0].type"),
        ({"input": [part({"type": ["x"]})]}, "input[0].content[0].type"),
        ({"input": [part({"text": "x"})]}, "input[0].content[0].type"),
        ({"input": [part({"type": "input_text"})]}, "input[0].content[0].text"),
        ({"input": [part({"type": "input_image", "file_id": "f"})]}, "input[0].content[0].file_id"),
        ({"input": [part({"type": "input_image"})]}, "input[0].content[0].image_url"),
        ({"input": [part({"type": "input_file", "file_url": "u"})]}, "input[0].content[0].file_url"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": {}}]}, "input[0].type"),
        ({"input": [{}]}, "input[0].id"),
        ({"input": [CALL]}, "input"),
        ({"input": [RESULT]}, "input"),
        ({"input": [CALL | {"arguments": {}}, RESULT]}, "input[0].arguments"),
        ({"input": [7]}, "input[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search_preview"}}, "tool_choice.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.name"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {}}}, "text.format.type"),
        ({"max_output_tokens": 15}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"include": ["everything"]}, "include[0]"),
        ({"background": True, "store": False}, "background"),
        ({"stream_options": {}}, "stream_options"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"response_format": {"type": "text"}}, "response_format"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: ""}}, "metadata"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


def test_a_tool_that_is_no_function_is_named() -> None:
    error = refused(tools=[{"type": "web_search"}])
    assert "web_search" in error.message
    assert error.code == "unsupported_tool"


@pytest.mark.parametrize("depth", [300, 600, 650, 700, 750, 900, 980, 100_000])
@pytest.mark.parametrize(
    "body",
    [
        '{"model":"m","input":[{"role":"user","content":"x","y":%s}]}',
        '{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":{"a":%s}}]}',
        '{"model":"m","input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{"a":%s}}}}',
    ],
)
def test_what_is_read_can_be_told_again_in_deeper_places(body: str, depth: int) -> None:
    try:
        creation = parse_create((body % ("[" * depth + "]" * depth)).encode(), ID)
    except InvalidRequestError:
        return
    chat_inference(creation, creation.items)
    told = {"event": {"response": ResponsesVoice(creation).response}, "items": creation.items}
    for _ in range(150):
        told = {"deeper": told}
    json.loads(msgspec.json.encode(told))


RICH = {
    "model": "m",
    "input": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "?"}, {"type": "input_image", "image_url": "u"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": []},
        CALL,
        RESULT | {"output": [{"type": "input_text", "text": "rain"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "item_reference", "id": "msg_1"},
    ],
    "tools": [TOOL],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
    "metadata": {"a": "b"},
    "stream": True,
    "stream_options": {},
    "store": True,
    "truncation": "auto",
}
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.sampled_from(["message", "function"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "id", "name", "x"]), inner),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, each in inner for place in places(each, (*path, name)))]


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(places(RICH)[1:]), ODD, st.booleans())
def test_one_odd_value_anywhere_is_refused_or_told_well(path: tuple[Any, ...], odd: Any, drop: bool) -> None:
    body = json.loads(json.dumps(RICH))
    *parents, name = path
    place = body
    for parent in parents:
        place = place[parent]
    if drop:
        del place[name]
    else:
        place[name] = odd
    try:
        creation = parse_create(json.dumps(body).encode(), ID)
        chat_inference(creation, [item for item in creation.items if item["type"] != "item_reference"])
    except InvalidRequestError:
        return
    ResponsesVoice(creation).whole(json.dumps(completion("x")).encode())


def test_an_operator_may_forbid_that_anything_is_stored() -> None:
    body = {"model": "m", "input": "x", "store": True}
    creation = parse_create(json.dumps(body).encode(), ID, may_store=False)
    assert not creation.stored
    assert ResponsesVoice(creation).response["store"] is False
    with pytest.raises(InvalidRequestError, match="background"):
        parse_create(json.dumps(body | {"background": True}).encode(), ID, may_store=False)
