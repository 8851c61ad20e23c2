"""Scheduling changes no bit of a real model: hits, forks, preemption and swapping against each request alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.request import Request
from engine.types import Delta, EngineOptions, GenerationRequest, SamplingParams

PROMPTS = [[17, 300 + i, 4000] * 11 + [i] for i in range(6)]
Build = Callable[..., Engine]


@pytest.fixture(scope="module")
def build(smollm2_path: Path) -> Build:
    def build(kv_cache_mb: int = 64, **options: object) -> Engine:
        return Engine(EngineOptions(**{"model": str(smollm2_path), "kv_cache_mb": kv_cache_mb, **options}))

    return build


@pytest.fixture(scope="module")
def roomy(build: Build) -> Engine:
    return build(prefix_caching=False)


def add(engine: Engine, prompt: list[int], seed: int = 0, n: int = 1, max_tokens: int = 30) -> Request:
    sampling = SamplingParams(seed=seed, max_tokens=max_tokens, ignore_eos=True, logprobs=0, temperature=0.8)
    return engine.add_request(GenerationRequest(request_id="r", prompt_token_ids=prompt, sampling=sampling, n=n))


def drain(engine: Engine) -> dict[Request, list[Delta]]:
    found: dict[Request, list[Delta]] = {}
    while engine.has_work:
        for output in engine.step():
            assert output.error is None
            assert output.delta is not None
            found.setdefault(output.request, []).append(output.delta)
    engine.check_integrity()
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks
    return found


def tokens_and_logprobs(deltas: list[Delta], index: int = 0) -> list[tuple[int, float]]:
    return [(each.token_id, each.logprob) for delta in deltas if delta.index == index for each in delta.logprobs]


def alone(engine: Engine, prompt: list[int], seed: int = 0, max_tokens: int = 30) -> list[tuple[int, float]]:
    request = add(engine, prompt, seed, max_tokens=max_tokens)
    return tokens_and_logprobs(drain(engine)[request])


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33])
def test_a_hit_has_the_bits_of_a_miss(build: Build, roomy: Engine, length: int) -> None:
    engine = build()
    prompt = (PROMPTS[0] * 2)[:length]
    expected = alone(roomy, prompt, max_tokens=12)
    assert [alone(engine, prompt, max_tokens=12) for _ in range(2)] == [expected] * 2
    assert alone(engine, [*prompt, 5], max_tokens=12) == alone(roomy, [*prompt, 5], max_tokens=12)
    assert engine.stats().cached_prompt_tokens_total >= 2 * (length // 16 * 16) - 1


def test_a_choice_has_the_bits_of_a_request_with_its_seed(build: Build, roomy: Engine) -> None:
    engine = build(max_batch_size=3)
    request = add(engine, PROMPTS[1], seed=7, n=4)
    found = drain(engine)[request]
    for index in range(4):
        assert tokens_and_logprobs(found, index) == alone(roomy, PROMPTS[1], seed=7 + index)


@pytest.mark.parametrize("swap_space_gb", [0.0, 0.05])
def test_preemption_changes_no_bit(build: Build, roomy: Engine, swap_space_gb: float) -> None:
    engine = build(kv_cache_mb=6, swap_space_gb=swap_space_gb, max_batch_tokens=64)
    requests = [add(engine, prompt, seed, max_tokens=60) for seed, prompt in enumerate(PROMPTS)]
    found = drain(engine)
    assert engine.stats().preemptions_total > 0
    assert (engine.stats().swapped_blocks_total > 0) == (swap_space_gb > 0)
    for seed, (request, prompt) in enumerate(zip(requests, PROMPTS, strict=True)):
        assert tokens_and_logprobs(found[request]) == alone(roomy, prompt, seed, max_tokens=60)
