"""Structured output by the bundled engine: schemas, expressions and grammars are kept to the end."""

import asyncio
import json
import re
from typing import Any

import jsonschema
import pytest

from engine.client import EngineClient
from engine.types import EngineOptions
from gateway.errors import InvalidRequestError
from gateway.upstream.engine_backend import EngineBackend
from tests.engine.toy_runner import ToyRunner
from tests.gateway.engine_requests import ask, chat, complete, completion

pytestmark = pytest.mark.anyio

CLOCK = {"type": "function", "function": {"name": "clock"}}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "coffee"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_schema_is_kept(backend: EngineBackend, stream: bool) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    messages = [{"role": "user", "content": "Invent a person, as JSON."}]
    answer = await ask(
        backend, messages=messages, response_format=wanted, max_tokens=150, stream=stream, n=2, temperature=1
    )
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), PERSON)


async def test_a_json_object_is_one(backend: EngineBackend) -> None:
    messages = [{"role": "user", "content": 'Repeat: {"a": 1}'}]
    answer = await ask(backend, messages=messages, response_format={"type": "json_object"}, max_tokens=100)
    text = answer["choices"][0]["message"]["content"]
    assert text.lstrip().startswith("{")
    if answer["choices"][0]["finish_reason"] == "stop":
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"guided_regex": r"\d{3}-[a-c]{2}"}, r"\d{3}-[a-c]{2}"),
        ({"guided_choice": ["red", "green"]}, "red|green"),
        ({"guided_grammar": 'start: "x" /[0-9]/ "!"'}, "x[0-9]!"),
        ({"guided_json": {"enum": [1, 2]}}, "[12]"),
        ({"guided_json": '{"enum": [3, 4]}'}, "[34]"),
        ({"structured_outputs": {"choice": ["red", "green"]}}, "red|green"),
        ({"structured_outputs": {"json_object": True}, "max_tokens": 60}, r"(?s)\{.*"),
    ],
)
async def test_what_vllms_clients_ask_for(backend: EngineBackend, fields: dict[str, Any], pattern: str) -> None:
    text = (await ask(backend, **fields))["choices"][0]["message"]["content"]
    assert re.fullmatch(pattern, text)
    text = (await complete(backend, "x", **fields))["choices"][0]["text"]
    assert re.fullmatch(pattern, text)


async def test_calls_or_json_of_a_schema(backend: EngineBackend) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    message = (await ask(backend, tools=[CLOCK], response_format=wanted, max_tokens=150))["choices"][0]["message"]
    if message.get("tool_calls"):
        assert message["tool_calls"][0]["function"]["name"] == "clock"
    else:
        jsonschema.validate(json.loads(message["content"]), PERSON)


@pytest.mark.parametrize("name", ["guided_regex", "structured_outputs"])
async def test_a_grammar_that_gets_too_much_work_is_the_clients_fault(backend: EngineBackend, name: str) -> None:
    pattern = "a{1000000}"  # compiles, and comes to llguidance's limits with the first token
    fields = {name: pattern if name == "guided_regex" else {"regex": pattern}}
    with pytest.raises(InvalidRequestError, match="can't be followed any further: lexer error") as caught:
        await ask(backend, max_tokens=200, **fields)
    assert (caught.value.param or "").startswith(name)
    assert "\n" not in caught.value.message


async def test_a_stream_tells_of_too_much_work_in_its_own_words(backend: EngineBackend) -> None:
    reply = await backend.send(chat(guided_regex="ab{1,3}a{1000000}", max_tokens=200, stream=True))
    assert reply.events is not None
    with pytest.raises(InvalidRequestError) as caught:
        async for _ in reply.events:
            pass
    assert caught.value.param == "guided_regex"


async def test_larks_notation_must_be_switched_on() -> None:
    client = EngineClient(EngineOptions(model="toy"), runner=ToyRunner())
    await client.start()
    for fields, param in (
        ({"guided_grammar": 'start: "x"'}, "guided_grammar"),
        ({"structured_outputs": {"grammar": 'start: "x"'}}, "structured_outputs.grammar"),
    ):
        with pytest.raises(InvalidRequestError, match="lark_grammars") as caught:
            await EngineBackend("local", client).send(completion("x", **fields))
        assert caught.value.param == param
        assert caught.value.code == "unsupported_parameter"
    await client.aclose()


async def test_stop_strings_and_lengths_end_what_follows_a_grammar(backend: EngineBackend) -> None:
    choice = (await ask(backend, guided_regex="[a-z]{5}-[a-z]{5}", stop="-"))["choices"][0]
    assert re.fullmatch("[a-z]{5}", choice["message"]["content"])
    assert choice["finish_reason"] == "stop"
    choice = (await ask(backend, guided_regex="[0-9]{40}", max_tokens=5))["choices"][0]
    assert choice["message"]["content"].isdigit()
    assert choice["finish_reason"] == "length"


async def test_answers_with_and_without_a_grammar_run_side_by_side(backend: EngineBackend) -> None:
    alone = [await ask(backend, guided_regex="[a-z ]{20}"), await ask(backend)]
    together = await asyncio.gather(ask(backend, guided_regex="[a-z ]{20}"), ask(backend), ask(backend, seed=1))
    assert [answer["choices"] for answer in together[:2]] == [answer["choices"] for answer in alone]
