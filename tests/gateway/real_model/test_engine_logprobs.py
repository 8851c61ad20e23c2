"""Logprobs, the best of several answers, biases and penalties by the bundled engine."""

import json
import math

import pytest

from engine.client import EngineClient
from gateway.upstream.engine_backend import EngineBackend
from gateway.wire.assemble import assemble
from tests.gateway.engine_requests import ask, complete, completion

pytestmark = pytest.mark.anyio


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


async def test_a_bias_and_penalties_change_the_answer(backend: EngineBackend, client: EngineClient) -> None:
    plain = (await ask(backend))["choices"][0]["message"]["content"]
    paris = client.encode(" Paris")[0]
    assert "Paris" in plain
    assert "Paris" not in (await ask(backend, logit_bias={str(paris): -100}))["choices"][0]["message"]["content"]
    sea = await complete(backend, "sea sea sea sea", max_tokens=8)
    other = await complete(backend, "sea sea sea sea", max_tokens=8, repetition_penalty=1.8)
    assert sea["choices"][0]["text"] != other["choices"][0]["text"]
