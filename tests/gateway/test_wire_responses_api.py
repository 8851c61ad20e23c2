"""The Responses API over chat: requests in, response objects and events out, all of it as OpenAI's schemas have it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequestError, UpstreamError, UpstreamTimeout
from gateway.wire.responses_api.chat_request import chat_inference
from gateway.wire.responses_api.request import Creation, parse_create
from gateway.wire.responses_api.voice import ResponsesVoice
from tests.conformance.openai_schemas import conforms
from tests.faults.misbehaviours import USAGE, chunk, completion

ID = "resp_" + "0" * 32
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def create(**fields: Any) -> Creation:
    body = {"model": "m", "input": "Where is the harbour?"} | fields
    return parse_create(json.dumps(body).encode(), ID)


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


def tell(voice: ResponsesVoice, *chunks: dict[str, Any], end: bool = True) -> list[dict[str, Any]]:
    """The events of a stream, each of them checked."""
    raw = b"".join(voice.events([json.dumps(piece).encode()]) for piece in chunks) + (voice.end() if end else b"")
    return events(raw)


def events(raw: bytes) -> list[dict[str, Any]]:
    found = []
    for block in raw.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = conforms(json.loads(data.removeprefix("data: ")), "ResponseStreamEvent")
        assert name == f"event: {event['type']}"
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def call_chunk(index: int | None, arguments: str, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    call = {"function": function} | ({"id": id, "type": "function"} if id else {})
    return chunk({"tool_calls": [call | ({} if index is None else {"index": index})]})


def part(content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [content]}


# In


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


# Out


def test_a_whole_answer() -> None:
    told = conforms(
        ResponsesVoice(create(metadata={"a": "b"})).whole(json.dumps(completion("Here.")).encode()), "Response"
    )
    assert (told["id"], told["status"], told["model"], told["metadata"]) == (ID, "completed", "mock", {"a": "b"})
    (item,) = told["output"]
    assert (item["type"], item["status"], item["content"][0]["text"]) == ("message", "completed", "Here.")
    assert told["usage"] == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 18,
    }


def test_usage_has_its_details() -> None:
    usage = USAGE | {
        "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    told = conforms(ResponsesVoice(create()).whole(json.dumps(completion(usage=usage)).encode()), "Response")
    assert told["usage"]["input_tokens_details"] == {"cached_tokens": 5, "cache_write_tokens": 2}
    assert told["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}


def test_a_streamed_text_is_told_step_by_step() -> None:
    told = tell(ResponsesVoice(create()), chunk({"role": "assistant", "content": ""}), chunk({"content": "He"}),
                chunk({"content": "re."}), chunk({}, "stop"), chunk(usage=USAGE))  # fmt: skip
    assert [event["type"] for event in told] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(event["delta"] for event in told if event["type"].endswith("delta")) == "Here."
    assert told[6]["text"] == "Here."
    assert told[-1]["response"]["output"] == [told[-2]["item"]]
    assert told[-1]["response"]["usage"]["total_tokens"] == 18
    assert "usage" not in told[0]["response"]


def test_reasoning_then_text_then_parallel_calls_in_mixed_pieces() -> None:
    voice = ResponsesVoice(create(tools=[TOOL]))
    told = tell(
        voice,
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning_content": "m."}),
        chunk({"content": "Let me look."}),
        call_chunk(0, "", "c1", "weather"),
        call_chunk(1, '{"b"', "c2", "weather"),
        call_chunk(0, '{"a":1}'),
        call_chunk(1, ":2}"),
        chunk({}, "tool_calls"),
    )
    output = told[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "Hmm."}]
    assert [(call["call_id"], call["arguments"]) for call in output[2:]] == [("c1", '{"a":1}'), ("c2", '{"b":2}')]
    assert len({item["id"] for item in output}) == 4
    done = [event for event in told if event["type"] == "response.output_item.done"]
    assert [event["item"] for event in done] == output
    for event in told:
        if "item_id" in event:
            assert output[event["output_index"]]["id"] == event["item_id"]


def test_calls_without_an_index() -> None:
    told = tell(
        ResponsesVoice(create()),
        call_chunk(None, '{"a"', "c1", "weather"),
        call_chunk(None, ":1}"),
        call_chunk(None, "{}", "c2", "weather"),
        chunk({}, "tool_calls"),
    )
    calls = [(item["call_id"], item["arguments"]) for item in told[-1]["response"]["output"]]
    assert calls == [("c1", '{"a":1}'), ("c2", "{}")]


def test_a_refusal() -> None:
    told = tell(ResponsesVoice(create()), chunk({"refusal": "I"}), chunk({"refusal": " won't."}), chunk({}, "stop"))
    assert told[-1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "I won't."}]


def test_logprobs_of_what_was_said() -> None:
    top = {"token": "x", "logprob": -0.5, "bytes": [120]}
    entry = top | {"top_logprobs": [top, {"token": "<end>", "logprob": -9.0, "bytes": None}]}
    first = chunk({"content": "x"})
    first["choices"][0]["logprobs"] = {"content": [entry], "refusal": None}
    told = tell(ResponsesVoice(create(top_logprobs=2)), first, chunk({}, "stop"))
    delta = next(event for event in told if event["type"] == "response.output_text.delta")
    assert delta["logprobs"][0]["top_logprobs"][1] == {"token": "<end>", "logprob": -9.0, "bytes": []}
    assert told[-1]["response"]["output"][0]["content"][0]["logprobs"] == delta["logprobs"]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_cut_answer_is_incomplete_and_says_why(finish: str, reason: str) -> None:
    told = tell(ResponsesVoice(create()), chunk({"content": "x"}), chunk({}, finish))
    assert told[-1]["type"] == "response.incomplete"
    assert told[-1]["response"]["incomplete_details"] == {"reason": reason}
    assert told[-1]["response"]["output"][0]["status"] == "incomplete"
    body = completion("x")
    body["choices"][0]["finish_reason"] = finish
    assert json.loads(ResponsesVoice(create()).whole(json.dumps(body).encode()))["status"] == "incomplete"


def test_a_broken_stream_is_a_failed_response_with_what_came() -> None:
    voice = ResponsesVoice(create())
    raw = voice.events([json.dumps(chunk({"content": "x"})).encode()]) + voice.broken(UpstreamTimeout("too late"))
    told = events(raw)
    assert told[-1]["type"] == "response.failed"
    assert told[-1]["response"]["error"] == {"code": "server_error", "message": "too late"}
    assert told[-1]["response"]["output"][0]["content"][0]["text"] == "x"
    assert voice.over


def test_an_upstreams_error_in_its_stream_is_a_failed_response() -> None:
    error = {"error": {"message": "slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    told = tell(ResponsesVoice(create()), chunk({"content": "x"}), error, end=False)
    assert told[-1]["response"]["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}


@pytest.mark.parametrize("nonsense", [b"{}", b"[]", b'{"choices":[]}', b'{"choices":[{"message":7}]}', b"\xff"])
def test_an_answer_that_is_none_is_the_upstreams_fault(nonsense: bytes) -> None:
    with pytest.raises(UpstreamError):
        ResponsesVoice(create()).whole(nonsense)


@pytest.mark.parametrize("nonsense", [b"7", b'{"choices":[7]}', b'{"choices":[{"delta":{"tool_calls":[3]}}]}', b"\xff"])
def test_a_payload_that_is_none_breaks_the_stream(nonsense: bytes) -> None:
    voice = ResponsesVoice(create())
    with pytest.raises(UpstreamError):
        voice.events([nonsense])


def test_refusals_name_the_clients_field() -> None:
    error = InvalidRequestError("no such schema", param="response_format")
    assert json.loads(ResponsesVoice(create()).error(error))["error"]["param"] == "text.format"


def test_nothing_of_a_streams_cut_changes_what_is_told() -> None:
    """However the payloads are bundled, the events are the same."""
    chunks = [chunk({"content": letter}) for letter in "abc"] + [chunk({}, "stop"), chunk(usage=USAGE)]
    payloads = [json.dumps(piece).encode() for piece in chunks]
    one, many = ResponsesVoice(create()), ResponsesVoice(create())
    at_once = one.events(payloads) + one.end()
    piecemeal = b"".join(many.events([payload]) for payload in payloads) + many.end()
    assert at_once == piecemeal


def call_delta(place: int, text: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": place, "id": f"c{place}", "function": {"name": "f", "arguments": text}}]}


DELTAS = st.lists(
    st.one_of(
        st.builds(lambda text: {"content": text}, st.text(max_size=5)),
        st.builds(lambda text: {"reasoning_content": text}, st.text(max_size=5)),
        st.builds(lambda text: {"refusal": text}, st.text(max_size=5)),
        st.builds(call_delta, st.integers(0, 3), st.text(max_size=5)),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=25)
@given(DELTAS)
def test_whatever_order_things_come_in_the_events_add_up_to_the_response(deltas: list[dict[str, Any]]) -> None:
    told = tell(ResponsesVoice(create()), *map(chunk, deltas), chunk({}, "stop"))
    output = told[-1]["response"]["output"]
    said: dict[tuple[int, int], str] = {}
    for event in told:
        if event["type"].endswith(".delta"):
            place = (event["output_index"], event.get("content_index", 0))
            said[place] = said.get(place, "") + event["delta"]
    for index, item in enumerate(output):
        texts = (
            [item["arguments"]]
            if item["type"] == "function_call"
            else [part.get("text", part.get("refusal")) for part in item["content"]]
        )
        assert texts == [said.get((index, place), "") for place in range(len(texts))]
        assert item["status"] == "completed"
    conforms(told[-1]["response"], "Response")
