"""Completions by the bundled engine: prompts of text and of tokens, several, none, and echoed."""

import pytest

from engine.client import EngineClient
from gateway.upstream.engine_backend import EngineBackend
from gateway.wire.assemble import assemble
from tests.conformance.openai_schemas import conforms
from tests.gateway.engine_requests import completion, payloads_of, whole

pytestmark = pytest.mark.anyio


async def test_completions_answer_prompt_by_prompt(backend: EngineBackend, client: EngineClient) -> None:
    prompts = ["The capital of France is", "Once upon a time"]
    answer = whole(await backend.send(completion(prompts, n=2, max_tokens=4)), "CreateCompletionResponse")
    texts = [choice["text"] for choice in answer["choices"]]
    assert "Paris" in texts[0]
    assert texts[0] == texts[1] != texts[2] == texts[3]
    assert answer["id"] == "cmpl-r1"
    assert answer["usage"]["prompt_tokens"] == sum(len(client.encode(prompt)) for prompt in prompts)
    assert answer["usage"]["completion_tokens"] == 16
    tokens = [client.encode(prompt) for prompt in prompts]
    same = whole(await backend.send(completion(tokens, n=2, max_tokens=4)), "CreateCompletionResponse")
    assert [choice["text"] for choice in same["choices"]] == texts


async def test_a_completion_has_sixteen_tokens_by_default(backend: EngineBackend) -> None:
    answer = whole(await backend.send(completion("Once", ignore_eos=True)), "CreateCompletionResponse")
    assert answer["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("as_tokens", [False, True])
async def test_echo_gives_the_prompt_back(
    backend: EngineBackend, client: EngineClient, stream: bool, as_tokens: bool
) -> None:
    prompt = "Once upon a time, 日本"
    sent = client.encode(prompt) if as_tokens else prompt
    reply = await backend.send(completion(sent, echo=True, max_tokens=3, stream=stream))
    body = assemble(await payloads_of(reply)) if stream else reply.body
    assert body is not None
    answer = conforms(body, "CreateCompletionResponse")
    assert answer["choices"][0]["text"].startswith(prompt)
    assert len(answer["choices"][0]["text"]) > len(prompt)


async def test_no_tokens_can_be_asked_for(backend: EngineBackend, client: EngineClient) -> None:
    answer = whole(await backend.send(completion("Count me", max_tokens=0, echo=True)), "CreateCompletionResponse")
    assert answer["choices"][0]["text"] == "Count me"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == len(client.encode("Count me"))
    assert answer["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("prompt", ["", [""], None])
async def test_a_prompt_may_be_empty(backend: EngineBackend, prompt: str | list[str] | None) -> None:
    answer = whole(await backend.send(completion(prompt, max_tokens=2)), "CreateCompletionResponse")
    assert answer["usage"]["prompt_tokens"] == 1  # the token that begins a document
