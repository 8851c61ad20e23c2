"""The official client on /v1/responses, through a real gateway to an upstream that only knows chats."""

import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
from openai.types.responses import Response

from tests.conformance.openai_schemas import conforms
from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.faults.misbehaviours import chunk, completion
from tests.support.server import Gateway

Upstream = MisbehavingUpstream


@pytest.fixture
def client(gateway: Gateway, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0) as official:
        yield official


@pytest.fixture(scope="session")
def other_client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.base_url, api_key=gateway.key("others"), max_retries=0) as official:
        yield official


def echo(upstream: Upstream) -> None:
    """Answers with the number of messages that it was sent."""

    async def script(wire: Wire) -> None:
        messages = wire.request.json["messages"]
        await wire.json(completion(f"{len(messages)} messages"))

    upstream.on("echo", script)


def until_ended(client: openai.OpenAI, id: str) -> Response:
    deadline = time.monotonic() + 10
    while (found := client.responses.retrieve(id)).status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_create_retrieve_delete(client: openai.OpenAI) -> None:
    made = client.responses.create(model="probe/ok", input="hello", metadata={"a": "b"})
    assert (made.status, made.output_text, made.metadata) == ("completed", "ok", {"a": "b"})
    assert made.usage is not None
    assert made.usage.total_tokens == 18
    assert client.responses.retrieve(made.id) == made
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(made.id)


def test_what_we_make_is_what_openai_would_send(gateway: Gateway, key: str) -> None:
    status, headers, body = gateway.post("/v1/responses", {"model": "probe/ok", "input": "conform"}, key)
    assert (status, headers["x-tollhouse-attempts"]) == (200, "1")
    made = conforms(body, "Response")
    conforms(gateway.get(f"/v1/responses/{made['id']}", key)[2], "Response")
    _, _, raw = gateway.post("/v1/responses", {"model": "probe/ok", "input": "conform", "stream": True}, key)
    data = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    assert b"[DONE]" not in data
    assert [conforms(event, "ResponseStreamEvent")["sequence_number"] for event in data] == list(range(len(data)))


def test_a_stream_is_stored_before_its_last_event_leaves(client: openai.OpenAI) -> None:
    with client.responses.stream(model="probe/ok", input="stream to me") as stream:
        kinds = []
        for event in stream:
            kinds.append(event.type)
            if event.type == "response.completed":
                assert client.responses.retrieve(event.response.id).output_text == "xx"
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "xx"


def test_a_cached_stream_is_stored_too(client: openai.OpenAI) -> None:
    ids = []
    for _ in range(2):
        events = list(client.responses.create(model="probe/ok", input="again and again", stream=True))
        ids.append(events[-1].response.id)
        assert client.responses.retrieve(ids[-1]).output_text == "xx"
    assert len(set(ids)) == 2


def test_nothing_is_stored_against_the_clients_will(client: openai.OpenAI) -> None:
    made = client.responses.create(model="probe/ok", input="forget me", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_conversation_of_three_turns(client: openai.OpenAI, upstream: Upstream) -> None:
    echo(upstream)
    first = client.responses.create(model="probe/echo", input="one", instructions="Count.")
    second = client.responses.create(model="probe/echo", input="two", previous_response_id=first.id)
    third = client.responses.create(model="probe/echo", input="three", previous_response_id=second.id, stream=False)
    assert [first.output_text, second.output_text, third.output_text] == ["2 messages", "3 messages", "5 messages"]
    assert upstream.of("echo")[-1].json["messages"] == [  # and not the instructions of before
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "2 messages"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "3 messages"},
        {"role": "user", "content": "three"},
    ]
    client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="probe/echo", input="four", previous_response_id=third.id)
    assert caught.value.code == "previous_response_not_found"


def test_a_round_of_tools(client: openai.OpenAI, upstream: Upstream) -> None:
    echo(upstream)
    parameters: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool: Any = {"type": "function", "name": "weather", "parameters": parameters, "strict": False}
    events = list(client.responses.create(model="probe/tools", input="Weather?", tools=[tool], stream=True))
    called = events[-1].response
    calls = [item for item in called.output if item.type == "function_call"]
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Paris", "Tokyo", "Lima"]
    results: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in calls]
    answered = client.responses.create(model="probe/echo", input=results, previous_response_id=called.id, tools=[tool])
    assert answered.output_text == "5 messages"
    sent = upstream.of("echo")[-1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "tool"]
    assert len(sent[1]["tool_calls"]) == 3
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="probe/echo", input="No results", previous_response_id=called.id)


def test_items_are_listed_and_referred_to(client: openai.OpenAI, upstream: Upstream) -> None:
    echo(upstream)
    said: Any = [{"role": "user", "content": letter} for letter in "abc"]
    made = client.responses.create(model="probe/echo", input=said)
    first_page = client.responses.input_items.list(made.id, order="asc", limit=2)
    assert first_page.has_more
    items = list(first_page)
    assert [item.content[0].text for item in items if item.type == "message"] == ["a", "b", "c"]
    assert [item.id for item in client.responses.input_items.list(made.id)] == [item.id for item in items[::-1]]
    references: Any = [{"type": "item_reference", "id": id} for id in (items[1].id, made.output[0].id)]
    client.responses.create(model="probe/echo", input=[*references, {"role": "user", "content": "d"}])
    sent = [message["content"] for message in upstream.of("echo")[-1].json["messages"]]
    assert sent == ["b", "3 messages", "d"]
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="probe/echo", input=[{"type": "item_reference", "id": "msg_" + "0" * 36}])


def test_structured_output_is_parsed(client: openai.OpenAI, upstream: Upstream) -> None:
    class City(pydantic.BaseModel):
        name: str

    async def city(wire: Wire) -> None:
        assert wire.request.json["response_format"]["json_schema"]["schema"]["required"] == ["name"]
        await wire.json(completion('{"name":"Lima"}'))

    upstream.on("city", city)
    assert client.responses.parse(model="probe/city", input="Name one.", text_format=City).output_parsed == City(
        name="Lima"
    )


def test_nobody_sees_anothers_response(client: openai.OpenAI, other_client: openai.OpenAI) -> None:
    made = client.responses.create(model="probe/ok", input="a secret")
    for attempt in (
        lambda: other_client.responses.retrieve(made.id),
        lambda: other_client.responses.cancel(made.id),
        lambda: other_client.responses.delete(made.id),
        lambda: other_client.responses.input_items.list(made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            attempt()
    with pytest.raises(openai.BadRequestError):
        other_client.responses.create(model="probe/ok", input="go on", previous_response_id=made.id)
    with pytest.raises(openai.NotFoundError):
        other_client.responses.create(
            model="probe/ok", input=[{"type": "item_reference", "id": str(made.output[0].id)}]
        )
    assert client.responses.retrieve(made.id) == made


# Errors


def test_a_refusal_of_the_upstreams_passes_and_is_no_response(client: openai.OpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="probe/400", input="x", stream=stream)
        assert caught.value.code == "code_400"


def test_a_tool_we_do_not_have_is_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="web_search"):
        client.responses.create(model="probe/ok", input="x", tools=[{"type": "web_search"}])


@pytest.mark.parametrize("behaviour", ["cut", "short", "error-event"])
def test_a_stream_that_breaks_is_a_failed_response(client: openai.OpenAI, behaviour: str) -> None:
    events = list(client.responses.create(model=f"probe/{behaviour}", input=f"break {behaviour}", stream=True))
    assert events[-1].type == "response.failed"
    stored = client.responses.retrieve(events[-1].response.id)
    assert stored.status == "failed"
    assert stored.error is not None
    assert stored.output_text.startswith("xxx")


def test_a_client_that_leaves_leaves_a_cancelled_response(client: openai.OpenAI, upstream: Upstream) -> None:
    with client.responses.create(model="probe/stall", input="bye", stream=True) as stream:
        for event in stream:
            if event.type == "response.created":
                id = event.response.id
            if event.type == "response.output_text.delta":
                break
    request = upstream.of("stall")[-1]
    assert upstream.wait_until(lambda: request.hung_up_after_s is not None, 2)
    deadline = time.monotonic() + 5
    while True:
        try:
            stored = client.responses.retrieve(id)
            break
        except openai.NotFoundError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert stored.status == "cancelled"
    assert stored.output_text.startswith("x")


# In the background


def slow(upstream: Upstream) -> None:
    async def script(wire: Wire) -> None:
        if not wire.request.json.get("stream"):
            await wire.raw(b"", 60)
        await wire.start_events()
        for _ in range(600):
            await wire.event(chunk({"content": "x"}), 0.1)

    upstream.on("slowly", script)


def test_in_the_background(client: openai.OpenAI) -> None:
    made = client.responses.create(model="probe/ok", input="take your time", background=True)
    assert made.status == "queued"
    ended = until_ended(client, made.id)
    assert (ended.status, ended.output_text, ended.background) == ("completed", "ok", True)
    assert client.responses.cancel(made.id) == ended


@pytest.mark.parametrize("behaviour", ["500", "400", "garbage"])
def test_what_fails_in_the_background_says_so(client: openai.OpenAI, behaviour: str) -> None:
    for stream in (False, True):
        made: Any = client.responses.create(model=f"probe/{behaviour}", input="x", background=True, stream=stream)
        if stream:
            events = list(made)
            assert events[-1].type == "response.failed"
            made = events[-1].response
        ended = until_ended(client, made.id)
        assert ended.status == "failed"
        assert ended.error is not None


def test_a_run_is_cancelled_and_its_upstream_let_go(client: openai.OpenAI, upstream: Upstream) -> None:
    slow(upstream)
    made = client.responses.create(model="probe/slowly", input="cancel me", background=True)
    assert upstream.wait_until(lambda: len(upstream.of("slowly")) > 0)
    assert client.responses.cancel(made.id).status == "cancelled"
    request = upstream.of("slowly")[-1]
    assert upstream.wait_until(lambda: request.hung_up_after_s is not None, 2)
    assert client.responses.retrieve(made.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(client.responses.create(model="probe/ok", input="plain").id)


def test_a_run_survives_its_listener_who_may_come_back(client: openai.OpenAI, upstream: Upstream) -> None:
    slow(upstream)
    with client.responses.create(model="probe/slowly", input="listen", background=True, stream=True) as stream:
        heard = [next(stream) for _ in range(6)]
    id = heard[0].response.id  # type: ignore[union-attr]
    assert client.responses.retrieve(id).status == "in_progress"
    with client.responses.retrieve(id, stream=True, starting_after=2) as stream:
        again = [next(stream) for _ in range(4)]
    assert [event.sequence_number for event in again] == [3, 4, 5, 6]
    assert again[0] == heard[3]
    client.responses.delete(id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(id)
    request = upstream.of("slowly")[-1]
    assert upstream.wait_until(lambda: request.hung_up_after_s is not None, 2)


def test_only_a_streaming_run_can_be_listened_to(client: openai.OpenAI) -> None:
    made = client.responses.create(model="probe/ok", input="plain and stored")
    with pytest.raises(openai.BadRequestError):
        client.responses.retrieve(made.id, stream=True)
