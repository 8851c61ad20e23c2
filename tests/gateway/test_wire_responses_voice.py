"""Chats' answers as response objects and events, all of them as OpenAI's schemas have it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequestError, UpstreamError, UpstreamTimeout
from gateway.wire.responses_api.voice import ResponsesVoice, error_event
from tests.conformance.openai_schemas import conforms
from tests.faults.misbehaviours import USAGE, chunk, completion
from tests.support.responses_api import ID, TOOL, create


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


NO_TEXTS = [
    {"content": 7}, {"content": ["a part"]}, {"refusal": True}, {"reasoning": {"a": 1}},
    {"tool_calls": [{"index": 0, "id": "call_0", "function": {"arguments": 7}}]},
    {"tool_calls": [{"index": 0, "id": "call_0", "function": {"name": ["f"]}}]},
    {"tool_calls": [{"index": 0, "id": 7, "function": {"name": "f"}}]},
]  # fmt: skip


@pytest.mark.parametrize("delta", NO_TEXTS)
def test_what_is_no_text_breaks_the_stream_and_spoils_nothing_before_it(delta: dict[str, Any]) -> None:
    voice = ResponsesVoice(create())
    voice.events([json.dumps(chunk({"content": "Here."})).encode()])
    with pytest.raises(UpstreamError) as raised:
        voice.events([json.dumps(chunk(delta)).encode()])
    assert b"response.failed" in voice.broken(raised.value)
    assert conforms(voice.response, "Response")["output"][0]["content"][0]["text"] == "Here."
    with pytest.raises(UpstreamError):
        ResponsesVoice(create()).whole(json.dumps(completion() | {"choices": [{"message": delta}]}).encode())


def test_content_in_parts_is_their_texts() -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "He"}, {"type": "text", "text": "re."}]
    told = tell(ResponsesVoice(create()), chunk({"content": parts}), chunk({}, "stop"))
    assert told[-1]["response"]["output"][0]["content"][0]["text"] == "Here."


@pytest.mark.parametrize("reason", [7, {"a": 1}, ["stop"]])
def test_an_end_for_no_reason_that_can_be_read_breaks_the_stream(reason: Any) -> None:
    with pytest.raises(UpstreamError):
        ResponsesVoice(create()).events([json.dumps(chunk({}, reason)).encode()])


def test_refusals_name_the_clients_field() -> None:
    error = InvalidRequestError("no such schema", param="response_format")
    assert json.loads(ResponsesVoice(create()).error(error))["error"]["param"] == "text.format"


def test_an_error_that_is_not_the_responses_own() -> None:
    (told,) = events(error_event(UpstreamTimeout("too late"), 0))
    assert (told["type"], told["code"], told["message"]) == ("error", "upstream_timeout", "too late")


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
