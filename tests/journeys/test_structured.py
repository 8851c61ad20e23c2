"""The official client asks the bundled engine for calls, JSON, logprobs and several answers."""

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field

NO_STORE = {"cache-control": "no-store"}
ASK = [{"role": "user", "content": "What is the weather in Rome?"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}},
                "required": ["city"],
            },
        },
    }
]


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


def test_a_call_and_its_result(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=ASK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=80
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments)["city"], str)
    result = {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 25 degrees."}
    messages: Any = [*ASK, choice.message, result]
    after = client.chat.completions.create(
        model="smollm2", messages=messages, tools=TOOLS, tool_choice="none", max_tokens=20
    )
    assert after.choices[0].message.content
    assert after.choices[0].message.tool_calls is None


def test_a_call_streamed_and_put_together_by_the_client(client: openai.OpenAI) -> None:
    named: Any = {"type": "function", "function": {"name": "get_weather"}}
    with client.chat.completions.stream(
        model="smollm2", messages=ASK, tools=TOOLS, tool_choice=named, max_tokens=80, temperature=0
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert "city" in json.loads(calls[0].function.arguments)
    assert final.choices[0].finish_reason == "tool_calls"


def test_an_answer_parsed_into_a_class(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="smollm2",
        messages=[{"role": "user", "content": "Invent a person."}],
        response_format=Person,
        max_tokens=100,
    )
    assert isinstance(answer.choices[0].message.parsed, Person)


def test_auto_routes_to_a_model_that_can(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="auto", messages=ASK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=80
    )
    assert answer.choices[0].message.tool_calls


def test_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=ASK, logprobs=True, top_logprobs=5, max_tokens=5, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(entry.token for entry in logprobs.content) == answer.choices[0].message.content
    assert all(len(entry.top_logprobs) == 5 for entry in logprobs.content)


def test_logprobs_streamed(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="smollm2", messages=ASK, logprobs=True, max_tokens=5, stream=True, extra_headers=NO_STORE
    )
    said = [chunk.choices[0] for chunk in stream]
    tokens = [entry.token for choice in said if choice.logprobs for entry in choice.logprobs.content or ()]
    assert "".join(tokens) == "".join(choice.delta.content or "" for choice in said)


def test_several_choices_end_each_for_itself(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="smollm2", messages=ASK, n=4, seed=1, temperature=1.2, max_tokens=6, stream=True, extra_headers=NO_STORE
    )
    texts, reasons = [""] * 4, []
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                reasons.append((choice.index, choice.finish_reason))
    assert len(set(texts)) == 4
    assert sorted(index for index, _ in reasons) == [0, 1, 2, 3]


def test_the_best_of_three(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="smollm2", prompt="Once", best_of=3, max_tokens=4, temperature=1, seed=5, extra_body={"ignore_eos": True}
    )
    assert len(answer.choices) == 1
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "tool_choice"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}},
            "response_format",
        ),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"paris": 1}}, "logit_bias"),
    ],
)
def test_wrong_input_is_a_bad_request(client: openai.OpenAI, fields: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="smollm2", messages=ASK, stream=stream, **fields)
        assert caught.value.param == param
