"""Tools, structured output, logprobs, best_of and embeddings by the bundled engine, with a real model."""

import asyncio
import base64
import json
import math
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.client import EngineClient
from engine.types import EngineOptions
from gateway.errors import InvalidRequestError
from gateway.upstream.engine_backend import EngineBackend
from gateway.wire.assemble import assemble
from gateway.wire.embeddings import parse_embedding
from tests.conformance.openai_schemas import conforms
from tests.engine.toy_runner import ToyRunner
from tests.gateway.engine_requests import QUESTION, answered, chat, completion, outbound

pytestmark = pytest.mark.anyio

CHAT, TEXT = "CreateChatCompletionResponse", "CreateCompletionResponse"
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


@pytest.fixture(scope="module")
async def client(smollm2_path: Path, anyio_backend: str) -> AsyncIterator[EngineClient]:
    client = EngineClient(
        EngineOptions(model=str(smollm2_path), kv_cache_mb=96, max_model_len=1024, max_wait_ms=0, lark_grammars=True)
    )
    await client.start()
    yield client
    await client.aclose()


@pytest.fixture
async def backend(client: EngineClient) -> AsyncIterator[EngineBackend]:
    yield EngineBackend("local", client)
    client.check_integrity()


async def ask(backend: EngineBackend, **fields: Any) -> Any:
    return await answered(await backend.send(chat(**fields)), CHAT)


async def complete(backend: EngineBackend, prompt: Any, **fields: Any) -> Any:
    return await answered(await backend.send(completion(prompt, **fields)), TEXT)


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


async def test_tools_that_nothing_satisfies_are_refused_in_one_line(backend: EngineBackend) -> None:
    parameters = {"properties": {"a": {"type": "string", "minLength": 5, "maxLength": 2}}, "required": ["a"]}
    for choice in ("required", "auto"):
        with pytest.raises(InvalidRequestError) as caught:
            await ask(backend, **tool(parameters=parameters, strict=True), tool_choice=choice)
        assert caught.value.param == "tools"
        assert caught.value.message.startswith("the tools' schemas can't be used: failed to compile JSON schema: Unsat")
        assert len(caught.value.message) < 150


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


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}


def tool(**function: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f"} | function}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [CLOCK], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function"}}, "tool_choice.function.name"),
        ({"tools": [CLOCK], "tool_choice": {"type": "x"}}, "tool_choice.type"),
        ({"tools": [CLOCK], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools.tools"),
        ({"tools": [CLOCK, CLOCK]}, "tools"),
        ({"tools": [CLOCK] * 129}, "tools"),
        (tool(name="no name"), "tools[0].function.name"),
        (tool(parameters=[]), "tools[0].function.parameters"),
        (tool(parameters={"type": "array"}), "tools[0].function.parameters"),
        (tool(description=5), "tools[0].function.description"),
        (tool(parameters={"properties": {"a": {"type": "nothing"}}}) | {"tool_choice": "required"}, "tools"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": schema([1])}, "response_format.json_schema.schema"),
        ({"response_format": schema({"type": "string", "minLength": 2, "maxLength": 1})}, "response_format"),
        ({"response_format": schema({"type": "nothing"})}, "response_format"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_regex": "a("}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"structured_outputs": {"grammar": "start: x"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"tools": [CLOCK], "guided_regex": "a"}, "guided_regex"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
    ],
)
async def test_wrong_input_names_its_field(backend: EngineBackend, fields: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        with pytest.raises(InvalidRequestError) as caught:
            await backend.send(chat(stream=stream, **fields))
        assert caught.value.param == param
    await ask(backend, max_tokens=1)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias[...]"),
        ({"min_p": 2}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"structured_outputs": []}, "structured_outputs"),
    ],
)
def test_misshapen_fields_are_refused_everywhere(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chat(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize("fields", [{"best_of": 1, "n": 2}, {"best_of": 2, "stream": True}])
def test_best_of_has_rules(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        completion("x", **fields)
    assert caught.value.param == "best_of"


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_of_a_chat(backend: EngineBackend, stream: bool) -> None:
    choice = (await ask(backend, logprobs=True, top_logprobs=3, stream=stream))["choices"][0]
    content = choice["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in content).decode() == choice["message"]["content"]
    for entry in content:
        values = [other["logprob"] for other in entry["top_logprobs"]]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
        assert entry["logprob"] == values[0] <= 0  # greedy
        assert entry["token"] == entry["top_logprobs"][0]["token"]


async def test_logprobs_without_the_most_likely(backend: EngineBackend) -> None:
    content = (await ask(backend, logprobs=True))["choices"][0]["logprobs"]["content"]
    assert content
    assert all(entry["top_logprobs"] == [] for entry in content)
    assert (await ask(backend))["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_of_a_completion(backend: EngineBackend, stream: bool) -> None:
    fields = {"logprobs": 2, "max_tokens": 5, "ignore_eos": True, "stream": stream}
    choice = (await complete(backend, "The capital of France is", **fields))["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert choice["text"][offset:].startswith(token)
    assert [max(top.values()) for top in logprobs["top_logprobs"]] == logprobs["token_logprobs"]


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_of_the_prompt_come_with_its_echo(
    backend: EngineBackend, client: EngineClient, stream: bool
) -> None:
    prompt = "The capital of France is Paris"
    fields = {"echo": True, "logprobs": 1, "max_tokens": 2, "ignore_eos": True, "n": 2, "stream": stream}
    reply = await backend.send(completion(prompt, **fields))
    if stream:
        assert reply.events is not None
        payloads = [payload for payloads in [each async for each in reply.events] for payload in payloads]
        answer = json.loads(assemble(payloads, num_choices=2) or b"null")
    else:
        answer = json.loads(reply.body or b"null")
    for choice in answer["choices"]:
        logprobs = choice["logprobs"]
        assert "".join(logprobs["tokens"]) == choice["text"]
        assert len(logprobs["tokens"]) == len(client.encode(prompt)) + 2
        assert logprobs["token_logprobs"][0] is None  # as at OpenAI, whatever its schema says
        assert logprobs["top_logprobs"][0] is None
        paris = logprobs["tokens"].index(" Paris")
        assert math.exp(logprobs["token_logprobs"][paris]) > 0.2
        assert choice["text"][logprobs["text_offset"][paris] :].startswith(" Paris")


async def test_a_prompt_can_be_scored_without_an_answer(backend: EngineBackend, client: EngineClient) -> None:
    reply = await backend.send(completion("Count me in", echo=True, logprobs=0, max_tokens=0))
    choice = json.loads(reply.body or b"null")["choices"][0]
    assert choice["text"] == "Count me in"
    assert len(choice["logprobs"]["tokens"]) == len(client.encode("Count me in"))


async def test_the_best_of_several_is_given(backend: EngineBackend, client: EngineClient) -> None:
    fields = {"max_tokens": 6, "temperature": 1.5, "seed": 3, "ignore_eos": True}
    every = await complete(backend, "Once upon a time", n=4, logprobs=0, **fields)
    means = {choice["text"]: sum(choice["logprobs"]["token_logprobs"]) for choice in every["choices"]}
    best = await complete(backend, "Once upon a time", n=1, best_of=4, **fields)
    assert best["choices"][0]["text"] == max(means, key=lambda text: means[text])
    assert best["usage"]["completion_tokens"] == 24
    assert best["usage"]["prompt_tokens"] == len(client.encode("Once upon a time"))
    two = await complete(backend, "Once upon a time", n=2, best_of=4, **fields)
    assert [choice["text"] for choice in two["choices"]] == sorted(means, key=lambda text: -means[text])[:2]


async def test_the_best_of_several_comes_with_the_prompts_logprobs(
    backend: EngineBackend, client: EngineClient
) -> None:
    fields = {
        "best_of": 4,
        "n": 2,
        "max_tokens": 3,
        "temperature": 1.5,
        "ignore_eos": True,
        "echo": True,
        "logprobs": 0,
    }
    for seed in range(3):  # whichever choice was the best
        reply = await backend.send(completion("Once upon a time", seed=seed, **fields))
        for choice in json.loads(reply.body or b"null")["choices"]:
            assert len(choice["logprobs"]["tokens"]) == len(client.encode("Once upon a time")) + 3
            assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


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


async def test_a_bias_and_penalties_change_the_answer(backend: EngineBackend, client: EngineClient) -> None:
    plain = (await ask(backend))["choices"][0]["message"]["content"]
    paris = client.encode(" Paris")[0]
    assert "Paris" in plain
    assert "Paris" not in (await ask(backend, logit_bias={str(paris): -100}))["choices"][0]["message"]["content"]
    sea = await complete(backend, "sea sea sea sea", max_tokens=8)
    other = await complete(backend, "sea sea sea sea", max_tokens=8, repetition_penalty=1.8)
    assert sea["choices"][0]["text"] != other["choices"][0]["text"]


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_embeddings(backend: EngineBackend, client: EngineClient, encoding: str) -> None:
    texts = ["a cat", "a kitten", "stocks fell"]
    body = {"model": "m", "input": texts, "encoding_format": encoding}
    reply = await backend.send(outbound(parse_embedding(json.dumps(body).encode())))
    answer = json.loads(reply.body or b"null")
    vectors = [item["embedding"] for item in answer["data"]]
    if encoding == "float":
        conforms(answer, "CreateEmbeddingResponse")
        assert all(len(vector) == 576 for vector in vectors)
        assert all(math.isclose(math.hypot(*vector), 1, rel_tol=1e-3) for vector in vectors)
    else:
        assert all(len(base64.b64decode(vector)) == 4 * 576 for vector in vectors)
    assert answer["usage"]["prompt_tokens"] == sum(len(client.encode(text)) for text in texts)


async def test_embeddings_of_another_size_are_refused(backend: EngineBackend) -> None:
    with pytest.raises(InvalidRequestError, match="576") as caught:
        await backend.send(outbound(parse_embedding(b'{"model":"m","input":"x","dimensions":5}')))
    assert caught.value.param == "dimensions"
    with pytest.raises(InvalidRequestError) as caught:
        await backend.send(outbound(parse_embedding(b'{"model":"m","input":[[1,99999999]]}')))
    assert caught.value.param == "input"
