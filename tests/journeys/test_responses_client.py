"""The official client's Responses API on the bundled engine, and what the books know of it."""

import json
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import openai
import pydantic
import pytest

from tests.conformance.openai_schemas import conforms
from tests.support.server import Gateway

HELLO = "Say hello in one short sentence."
FRESH = {"cache-control": "no-store"}


def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_whole_and_streamed_say_the_same(client: openai.OpenAI) -> None:
    wanted: Any = {
        "model": "smollm2",
        "input": HELLO,
        "max_output_tokens": 24,
        "temperature": 0,
        "extra_headers": FRESH,
    }
    whole = client.responses.create(**wanted)
    with client.responses.stream(**wanted) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text != ""
    assert whole.usage is not None
    assert final.usage is not None
    assert 0 < whole.usage.output_tokens == final.usage.output_tokens <= 24


def test_a_conversation_goes_on(client: openai.OpenAI) -> None:
    first = client.responses.create(model="smollm2", input="My name is Ada.", max_output_tokens=24, temperature=0)
    second = client.responses.create(
        model="smollm2", input="Repeat my name.", previous_response_id=first.id, max_output_tokens=24, temperature=0
    )
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert client.responses.retrieve(second.id).previous_response_id == first.id


def test_an_answer_that_is_cut_is_incomplete(client: openai.OpenAI) -> None:
    wish = "Count from one to a hundred in words."
    cut = client.responses.create(model="smollm2", input=wish, max_output_tokens=16, temperature=0)
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_structured_output_is_held_to_its_schema(client: openai.OpenAI) -> None:
    class Answer(pydantic.BaseModel):
        yes: bool

    parsed = client.responses.parse(
        model="smollm2", input="Is water wet? Answer in JSON.", text_format=Answer, temperature=0
    )
    assert isinstance(parsed.output_parsed, Answer)


def test_a_function_is_called(client: openai.OpenAI) -> None:
    parameters = {"type": "object", "properties": {"city": {"enum": ["Lima", "Oslo"]}}, "required": ["city"]}
    tool: Any = {"type": "function", "name": "weather", "parameters": parameters, "strict": True}
    events = list(
        client.responses.create(
            model="smollm2", input="The weather in Lima?", tools=[tool], tool_choice="required", stream=True,
            parallel_tool_calls=False, temperature=0,
        )
    )  # fmt: skip
    for event in events:
        conforms(json.loads(event.to_json()), "ResponseStreamEvent")
    (call,) = (item for item in events[-1].response.output if item.type == "function_call")
    assert json.loads(call.arguments)["city"] in ("Lima", "Oslo")
    answered = client.responses.create(
        model="smollm2",
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}],
        previous_response_id=events[-1].response.id,
        tools=[tool],
        max_output_tokens=24,
    )
    assert answered.status in ("completed", "incomplete")


def test_logprobs(client: openai.OpenAI) -> None:
    made = client.responses.create(
        model="smollm2", input=HELLO, max_output_tokens=16, top_logprobs=2, include=["message.output_text.logprobs"]
    )
    part: Any = made.output[0].content[0]  # type: ignore[union-attr]
    assert len(part.logprobs[0].top_logprobs) == 2


def test_in_the_background(client: openai.OpenAI) -> None:
    made = client.responses.create(model="smollm2", input=HELLO, max_output_tokens=16, background=True)
    until(lambda: client.responses.retrieve(made.id).status not in ("queued", "in_progress"))
    assert client.responses.retrieve(made.id).output_text


def test_what_the_engine_cannot_do_is_named_as_the_client_wrote_it(client: openai.OpenAI) -> None:
    image: Any = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
    with pytest.raises(openai.BadRequestError, match="images") as caught:
        client.responses.create(model="smollm2", input=[{"role": "user", "content": [image]}])
    assert caught.value.param == "input"


def test_the_router_chooses_and_the_books_know(client: openai.OpenAI, gateway: Gateway, key: str) -> None:
    body = {"model": "auto", "input": "Hello there!", "max_output_tokens": 16, "user": "ada"}
    status, headers, _ = gateway.post("/v1/responses", body, key)
    assert (status, headers["x-tollhouse-cache"]) == (200, "miss")
    assert headers["x-tollhouse-model"] == "smollm2"
    request_id = headers["x-request-id"]

    def row() -> Any:
        with sqlite3.connect(gateway.home / "tollhouse.db") as database:
            return database.execute(
                "SELECT endpoint, status, user, prompt_tokens > 0 FROM requests WHERE id = ?", (request_id,)
            ).fetchone()

    until(row)
    assert row() == ("responses", "ok", "ada", 1)


def test_a_conversation_that_outgrows_the_model_is_cut_where_that_is_asked_for(client: openai.OpenAI) -> None:
    said: Any = [{"role": role, "content": "word " * 100} for _ in range(60) for role in ("user", "assistant")]
    wanted: Any = {"model": "smollm2", "input": [*said, {"role": "user", "content": HELLO}], "temperature": 0}
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**wanted)
    assert refused.value.code == "context_length_exceeded"
    answered = client.responses.create(**wanted, truncation="auto", max_output_tokens=8000, extra_headers=FRESH)
    assert (answered.truncation, answered.status) == ("auto", "completed")
    assert answered.usage is not None
    assert answered.usage.input_tokens <= 8192 - 8000
    assert len(client.responses.input_items.list(answered.id, limit=100).data) == 100  # what was said stays said
