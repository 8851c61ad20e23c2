"""The client over the real model: answers, prefix hits, and tokens that do not depend on company or on preemption."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.client import EngineClient
from engine.types import Delta, EngineOptions, GenerationRequest, SamplingParams

pytestmark = pytest.mark.anyio

QUESTIONS = [
    "What is the capital of France?",
    "Name three colours.",
    "Write a line about the sea.",
    "What is two plus two?",
    "Say hello in Spanish and in French, please; then explain in one sentence how the two greetings differ.",
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client(smollm2_path: Path) -> AsyncIterator[EngineClient]:
    """With so little memory that five conversations do not fit at once."""
    client = EngineClient(EngineOptions(model=str(smollm2_path), kv_cache_mb=8, max_batch_tokens=48, num_threads=2))
    await client.start()
    yield client
    await client.aclose()
    client.check_integrity()


def request(client: EngineClient, question: str, salt: str, sampling: SamplingParams) -> GenerationRequest:
    prompt = client.encode_chat([{"role": "user", "content": question}])
    return GenerationRequest(request_id=question, prompt_token_ids=prompt, sampling=sampling, cache_salt=salt)


async def collect(client: EngineClient, params: GenerationRequest) -> list[Delta]:
    return [delta async for delta in client.generate(params)]


def tokens(answer: list[Delta]) -> list[int]:
    return [token for delta in answer for token in delta.token_ids]


async def test_it_knows_the_capital_of_france(client: EngineClient) -> None:
    answer = await collect(client, request(client, QUESTIONS[0], "", SamplingParams(temperature=0)))
    assert "Paris" in "".join(delta.text for delta in answer)
    assert answer[-1].finish_reason == "stop"
    assert answer[-1].num_generated_tokens == len(tokens(answer))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_tokens_are_the_same_alone_and_in_company_and_after_preemption(
    client: EngineClient, temperature: float
) -> None:
    sampling = SamplingParams(temperature=temperature, top_p=0.95, seed=7, max_tokens=40, ignore_eos=True)
    alone = [await collect(client, request(client, question, f"a{temperature}", sampling)) for question in QUESTIONS]
    before = client.stats().preemptions_total
    together = await asyncio.gather(
        *(collect(client, request(client, question, f"b{temperature}", sampling)) for question in QUESTIONS)
    )
    assert client.stats().preemptions_total > before, "the memory was to be too small"
    for question, one, other in zip(QUESTIONS, alone, together, strict=True):
        assert tokens(one) == tokens(other), question
        assert "".join(delta.text for delta in one) == client.decode(tokens(one))


async def test_a_repeated_prompt_is_found_and_answered_alike(client: EngineClient) -> None:
    params = request(client, QUESTIONS[4], "repeat", SamplingParams(temperature=0, max_tokens=10))
    first, second = [await collect(client, params) for _ in range(2)]
    assert first[-1].num_cached_tokens == 0
    assert second[-1].num_cached_tokens == (len(params.prompt_token_ids) - 1) // 16 * 16
    assert tokens(first) == tokens(second)


async def test_a_cancelled_answer_frees_its_blocks(client: EngineClient) -> None:
    stream = client.generate(request(client, QUESTIONS[2], "", SamplingParams(max_tokens=80, ignore_eos=True)))
    await anext(stream)
    await stream.aclose()
    async with asyncio.timeout(10):
        while client.stats().num_free_blocks < client.stats().num_blocks:
            await asyncio.sleep(0.01)
