"""A chat's answer as a message, whole and streamed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequestError, OverloadedError, UpstreamError
from gateway.wire.messages.dialect import MessagesVoice
from gateway.wire.replay import replay

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 7,
    "total_tokens": 107,
    "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
}


def completion(message: dict[str, Any], finish: str = "stop", **choice: Any) -> bytes:
    choices = [{"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish} | choice]
    return json.dumps(
        {"id": "chatcmpl-7", "object": "chat.completion", "model": "up", "choices": choices, "usage": USAGE}
    ).encode()


def call(id: str, arguments: str, **place: int) -> dict[str, Any]:
    return place | {"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def whole(message: dict[str, Any], finish: str = "stop", **choice: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(MessagesVoice("r", ("END",)).whole(completion(message, finish, **choice)))
    return told


def events(data: bytes) -> list[dict[str, Any]]:
    """Each event's data; its name is its type."""
    found = []
    for event in data.decode().split("\n\n")[:-1]:
        name, payload = event.split("\n")
        found.append(json.loads(payload.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def streamed(payloads: list[bytes]) -> list[dict[str, Any]]:
    voice = MessagesVoice("r", ("END",))
    return events(b"".join(voice.events([payload]) for payload in payloads) + voice.end())


def gathered(told: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of the events; asserts that they come in the order that the API promises."""
    assert told[0]["type"] == "message_start"
    assert [event["type"] for event in told[-2:]] == ["message_delta", "message_stop"]
    message: dict[str, Any] = told[0]["message"]
    open_index = None
    for event in told[1:-2]:
        kind = event["type"]
        if kind == "content_block_start":
            assert open_index is None
            open_index = event["index"]
            assert open_index == len(message["content"])
            message["content"].append(event["content_block"] | {"json": ""})
        elif kind == "content_block_delta":
            assert event["index"] == open_index
            block, delta = message["content"][-1], event["delta"]
            name = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "json"}[delta["type"]]
            block[name] += delta["partial_json" if name == "json" else name]
        elif kind == "content_block_stop":
            assert event["index"] == open_index
            open_index = None
        else:
            assert kind == "ping"
    assert open_index is None
    for block in message["content"]:
        written = block.pop("json")
        if block["type"] == "tool_use" and written:
            block["input"] = json.loads(written)
    return message | told[-2]["delta"] | {"usage": told[-2]["usage"]}


ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"content": "Hello there, my friend 🙂."}, "stop"),
    "thought": ({"content": "Yes.", "reasoning_content": "Let me think about that."}, "stop"),
    "thought by another name": ({"content": "Yes.", "reasoning": "Hm."}, "stop"),
    "calls": ({"content": None, "tool_calls": [call("a", '{"city":"Paris"}'), call("b", "{}")]}, "tool_calls"),
    "text and a call": ({"content": "I look.", "tool_calls": [call("a", '{"city":"Lima"}')]}, "tool_calls"),
    "cut off": ({"content": "Once upon"}, "length"),
    "filtered": ({"content": ""}, "content_filter"),
    "refused": ({"content": None, "refusal": "I can't help with that."}, "stop"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_adds_up_to_the_whole(name: str) -> None:
    message, finish = ANSWERS[name]
    assert gathered(streamed(replay(completion(message, finish), include_usage=True)[:-1])) == whole(message, finish)


def test_a_whole_message() -> None:
    told = whole({"content": "I look.", "tool_calls": [call("a", '{"city":"Lima"}')]}, "tool_calls")
    assert told == {
        "id": "msg_7",
        "type": "message",
        "role": "assistant",
        "model": "up",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Lima"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 30,
            "cache_read_input_tokens": 60,
            "output_tokens": 7,
        },
    }


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("eos", "end_turn")],
)
def test_why_it_ended(finish: str, reason: str) -> None:
    assert whole({"content": "x"}, finish)["stop_reason"] == reason


def test_a_stop_sequence_is_named_where_the_backend_tells_it() -> None:
    told = whole({"content": "x"}, "stop", stop_reason="END")
    assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", "END")
    assert whole({"content": "x"}, "stop", stop_reason=128009)["stop_reason"] == "end_turn"  # a token's number


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [("", {}), ("{}", {}), ('{"a":', {"INVALID_JSON": '{"a":'}), ("[1]", {"INVALID_JSON": "[1]"})],
)
def test_arguments_that_are_no_object_are_not_lost(arguments: str, parsed: dict[str, Any]) -> None:
    (block,) = whole({"content": None, "tool_calls": [call("a", arguments)]}, "tool_calls")["content"]
    assert block["input"] == parsed


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices":[]}', b'{"choices":[{"text":"x"}]}', b"[" * 100_000])
def test_what_is_no_answer_is_the_upstreams_fault(body: bytes) -> None:
    with pytest.raises(UpstreamError):
        MessagesVoice("r").whole(body)


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return json.dumps({"id": "chatcmpl-7", "model": "up", "choices": choices}).encode()


@given(st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_calls_that_come_mixed_are_told_one_after_the_other(cities: list[str], random: Any) -> None:
    """Whatever the order of their pieces, each call's own order kept."""
    rest = {index: list(json.dumps({"city": city})) for index, city in enumerate(cities)}
    payloads = [chunk({"role": "assistant", "content": ""})]
    order = [index for index, pieces in rest.items() for _ in range(len(pieces) + 1)]
    random.shuffle(order)
    begun: set[int] = set()
    for index in order:
        if index not in begun:
            begun.add(index)
            payloads.append(chunk({"tool_calls": [call(f"c{index}", "", index=index)]}))
        else:
            piece = {"index": index, "function": {"arguments": rest[index].pop(0)}}
            payloads.append(chunk({"tool_calls": [piece]}))
    message = gathered(streamed([*payloads, chunk({}, "tool_calls")]))
    assert {block["id"]: block["input"]["city"] for block in message["content"]} == {
        f"c{index}": city for index, city in enumerate(cities)
    }
    assert message["stop_reason"] == "tool_use"


def test_calls_that_follow_each_other_are_told_as_they_come() -> None:
    voice = MessagesVoice("r")
    voice.events([chunk({"tool_calls": [call("a", "", index=0)]})])
    first = voice.events([chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"x":1}'}}]})])
    second = voice.events([chunk({"tool_calls": [call("b", "", index=1)]})])
    assert [event["type"] for event in events(first)] == ["content_block_delta"]
    assert [event["type"] for event in events(second)] == ["content_block_stop", "content_block_start"]


def test_a_call_whose_name_comes_late() -> None:
    late = {"index": 0, "id": "a", "function": {"arguments": ""}}
    named = {"index": 0, "function": {"name": "weather", "arguments": "{}"}}
    message = gathered(streamed([chunk({"tool_calls": [late]}), chunk({"tool_calls": [named]}, "tool_calls")]))
    assert message["content"] == [{"type": "tool_use", "id": "a", "name": "weather", "input": {}}]


def test_a_refusal_in_pieces_stays_one() -> None:
    message = gathered(streamed([chunk({"refusal": "I "}), chunk({"refusal": "can't."}), chunk({}, "stop")]))
    assert message["content"] == [{"type": "text", "text": "I can't."}]
    assert message["stop_reason"] == "refusal"


def test_usage_that_nobody_reports_is_a_token_a_piece() -> None:
    message = gathered(streamed([chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop")]))
    assert message["usage"]["output_tokens"] == 2


@pytest.mark.parametrize("payload", [b"not json", b"\xff", b'{"choices":[{"delta":{"content":7}}]}'])
def test_what_is_no_chunk_breaks_the_stream(payload: bytes) -> None:
    """Passed over, it would leave a hole in an answer that looks whole."""
    with pytest.raises(UpstreamError, match="can't be read"):
        MessagesVoice("r").events([payload])


def test_chunks_need_not_say_whose_they_are() -> None:
    nameless = chunk({"content": "a"}, "stop").replace(b'"chatcmpl-7"', b"null").replace(b'"up"', b"null")
    message = gathered(streamed([nameless]))
    assert message["content"] == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("overloaded", "overloaded_error", "Busy"),
        (None, "api_error", "Busy"),
        ("rate_limit_exceeded", "rate_limit_error", "Busy"),
        ("context_length_exceeded", "api_error", "prompt is too long: Busy"),
    ],
)
def test_an_error_in_the_stream(code: str | None, kind: str, said: str) -> None:
    payload = json.dumps({"error": {"message": "Busy", "type": "server_error", "code": code}}).encode()
    (event,) = events(MessagesVoice("r7").events([payload]))
    assert event == {"type": "error", "error": {"type": kind, "message": said}, "request_id": "r7"}


def test_errors_of_ours_and_of_an_upstream() -> None:
    voice = MessagesVoice("r7")
    told = json.loads(voice.error(InvalidRequestError("No.", param="x")))
    assert told == {"type": "error", "error": {"type": "invalid_request_error", "message": "No."}, "request_id": "r7"}
    (event,) = events(voice.broken(OverloadedError("Busy")))
    assert event["error"]["type"] == "overloaded_error"
    theirs = b'{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}'
    assert json.loads(voice.refusal(theirs, 400))["error"]["message"] == "prompt is too long: too long"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_types_by_status(status: int, kind: str) -> None:
    assert json.loads(MessagesVoice("r").refusal(b'{"error":{"message":"x"}}', status))["error"]["type"] == kind
