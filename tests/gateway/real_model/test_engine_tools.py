"""Tools by the bundled engine: called when asked for, told to the model, and read back."""

import json
import re
from typing import Any

import jsonschema
import pytest

from engine.client import EngineClient
from gateway.errors import InvalidRequestError
from gateway.upstream.engine_backend import EngineBackend
from tests.gateway.engine_requests import QUESTION, ask, chat

pytestmark = pytest.mark.anyio

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
ASK = [{"role": "user", "content": "What is the weather in Rome?"}]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_required_call_is_made(backend: EngineBackend, stream: bool) -> None:
    fields = {"messages": ASK, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 120, "stream": stream}
    choice = (await ask(backend, parallel_tool_calls=False, **fields))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    call = choice["message"]["tool_calls"][0]
    assert re.fullmatch("call_[0-9a-f]{24}", call["id"])
    assert call["function"]["name"] == "get_weather"
    jsonschema.validate(json.loads(call["function"]["arguments"]), WEATHER["function"]["parameters"])
    assert not choice["message"]["content"]


async def test_a_stream_gives_a_call_in_pieces(backend: EngineBackend) -> None:
    reply = await backend.send(chat(messages=ASK, tools=[WEATHER], tool_choice="required", max_tokens=120, stream=True))
    assert reply.events is not None
    payloads = [payload for payloads in [each async for each in reply.events] for payload in payloads]
    chunks = [json.loads(payload) for payload in payloads[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["type"] == "function"
    assert calls[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert len(calls) > 3
    assert all("id" not in call and "name" not in call["function"] for call in calls[1:] if call["index"] == 0)


async def test_a_named_function_is_called(backend: EngineBackend) -> None:
    named = {"type": "function", "function": {"name": "clock"}}
    choice = (await ask(backend, messages=ASK, tools=[WEATHER, CLOCK], tool_choice=named, max_tokens=60))["choices"][0]
    assert [call["function"] for call in choice["message"]["tool_calls"]] == [{"name": "clock", "arguments": "{}"}]
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("name", ["clock", "get_weather"])
async def test_allowed_tools_alone_are_called(backend: EngineBackend, name: str) -> None:
    one = {"type": "function", "function": {"name": name}}
    choice_of = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [one, one]}}
    answer = await ask(
        backend, messages=ASK, tools=[WEATHER, CLOCK], tool_choice=choice_of, parallel_tool_calls=False, max_tokens=60
    )
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == name


async def test_the_model_is_told_of_the_allowed_tools_alone(backend: EngineBackend) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    choice_of = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    some = await ask(backend, messages=ASK, tools=[WEATHER, CLOCK], tool_choice=choice_of, max_tokens=8)
    alone = await ask(backend, messages=ASK, tools=[WEATHER], max_tokens=8)
    assert some["usage"] == alone["usage"]
    assert some["choices"][0]["message"]["content"] == alone["choices"][0]["message"]["content"]


@pytest.mark.parametrize("fields", [{"tool_choice": "auto"}, {}, {"parallel_tool_calls": False}])
async def test_a_model_may_answer_in_words(backend: EngineBackend, fields: dict[str, Any]) -> None:
    answer = await ask(backend, tools=[WEATHER], max_tokens=8, logit_bias={"44": -100}, **fields)
    assert answer["choices"][0]["message"]["content"]


async def test_no_tool_is_shown_when_none_may_be_called(backend: EngineBackend, client: EngineClient) -> None:
    answer = await ask(backend, tools=[WEATHER], tool_choice="none")
    assert answer["usage"]["prompt_tokens"] == len(client.encode_chat(QUESTION))
    assert "Paris" in answer["choices"][0]["message"]["content"]


async def test_a_call_cut_off_is_no_finished_call(backend: EngineBackend) -> None:
    answer = await ask(backend, messages=ASK, tools=[WEATHER], tool_choice="required", max_tokens=22)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])


async def test_results_of_calls_are_read(backend: EngineBackend, client: EngineClient) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages = [*ASK, {"role": "assistant", "content": None, "tool_calls": [call]}]
    messages.append({"role": "tool", "tool_call_id": "call_1", "content": "The moon is green."})
    answer = await ask(backend, messages=messages, tools=[CLOCK])
    described = client.encode_chat(messages, [CLOCK["function"] | {"type": "function"}])
    assert "The moon is green." in client.decode(described)
    assert answer["usage"]["prompt_tokens"] > len(client.encode_chat(messages))


async def test_tools_that_nothing_satisfies_are_refused_in_one_line(backend: EngineBackend) -> None:
    parameters = {"properties": {"a": {"type": "string", "minLength": 5, "maxLength": 2}}, "required": ["a"]}
    unsatisfiable = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}
    for choice in ("required", "auto"):
        with pytest.raises(InvalidRequestError) as caught:
            await ask(backend, tools=[unsatisfiable], tool_choice=choice)
        assert caught.value.param == "tools"
        assert caught.value.message.startswith("the tools' schemas can't be used: failed to compile JSON schema: Unsat")
        assert len(caught.value.message) < 150


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", [{"stop": ['"', "city"]}, {"stop": ["{"]}, {"stop_token_ids": list(range(500))}])
async def test_what_ends_a_text_does_not_cut_a_call_that_is_demanded(
    backend: EngineBackend, stop: dict[str, Any], stream: bool
) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    fields = {"messages": ASK, "tools": [WEATHER], "tool_choice": named, "max_tokens": 120, "stream": stream}
    choice = (await ask(backend, **fields, **stop))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    arguments = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
    jsonschema.validate(arguments, WEATHER["function"]["parameters"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_a_stop_string_cut_off_is_no_finished_call(backend: EngineBackend, stream: bool) -> None:
    """Made of the model's own accord: it is asked to repeat one."""
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "unit": "C"}}\n</tool_call>'
    messages = [{"role": "user", "content": f"Repeat exactly, and nothing else:\n{call}"}]
    fields = {"messages": messages, "tools": [WEATHER], "temperature": 0, "max_tokens": 60, "stream": stream}
    whole = (await ask(backend, **fields))["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    cut = (await ask(backend, **fields, stop='Rome"'))["choices"][0]
    assert cut["finish_reason"] == "stop"
    assert cut["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "'
