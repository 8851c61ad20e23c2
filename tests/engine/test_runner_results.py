"""What comes out of steps beside tokens, through a whole engine: logprobs of answers and prompts, embeddings, errors.

On a random model of two layers, so small a cache that requests are preempted, in plain torch and with this machine's
kernels.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from model_files import HIDDEN, VOCABULARY, random_weights, write_folder

from engine.engine import Engine
from engine.errors import EngineError, LogitsNotFinite
from engine.request import Request
from engine.runner import Runner
from engine.types import Delta, EngineOptions, GenerationRequest, Grammar, SamplingParams, TokenLogprobs
from kernels.operations import PackedWeight

EOS = len(VOCABULARY) - 1
PROMPT = [(7 * i + i * i) % 250 for i in range(50)]
RICH: dict[str, Any] = {
    "temperature": 1.2,
    "top_p": 0.95,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.2,
    "logit_bias": {3: 2.0},
    "logprobs": 3,
    "prompt_logprobs": 2,
}


@pytest.fixture(scope="module", params=["auto", "reference"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    weights = random_weights()
    head = torch.randn(len(VOCABULARY), HIDDEN, generator=torch.Generator().manual_seed(4)) / 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOLLHOUSE_KERNELS", request.param)
        folder = tmp_path_factory.mktemp("model")
        yield write_folder(folder, weights | {"lm_head.weight": head}, tie_word_embeddings=False)


def make_engine(model: Path, **options: Any) -> Engine:
    return Engine(EngineOptions(model=str(model), **{"kv_cache_mb": 1, **options}))


def params(prompt: Sequence[int] = PROMPT, name: str = "r", **fields: Any) -> GenerationRequest:
    own = set(GenerationRequest.__struct_fields__)
    sampling = {"seed": 42, "max_tokens": 40, "ignore_eos": True} | {k: v for k, v in fields.items() if k not in own}
    of_request = {key: value for key, value in fields.items() if key in own}
    return GenerationRequest(
        request_id=name, prompt_token_ids=list(prompt), sampling=SamplingParams(**sampling), **of_request
    )


def run(engine: Engine, requests: Sequence[GenerationRequest]) -> dict[Request, Delta | EngineError]:
    """Each request's whole answer as one delta, or its error; integrity is checked after each step."""
    parts: dict[Request, list[Delta]] = {engine.add_request(each): [] for each in requests}
    errors: dict[Request, EngineError] = {}
    while engine.has_work:
        for output in engine.step():
            if output.error is not None:
                errors[output.request] = output.error
            elif output.delta is not None:
                parts[output.request].append(output.delta)
        engine.check_integrity()
    return {request: errors.get(request) or joined(deltas) for request, deltas in parts.items()}


def joined(deltas: list[Delta]) -> Delta:
    return msgspec.structs.replace(
        deltas[-1],
        token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
        logprobs=tuple(each for delta in deltas for each in delta.logprobs),
        prompt_logprobs=tuple(each for delta in deltas for each in delta.prompt_logprobs),
        num_cached_tokens=0,
    )


def alone(model: Path, request: GenerationRequest) -> Delta:
    (found,) = run(make_engine(model, prefix_caching=False), [request]).values()
    assert isinstance(found, Delta)
    return msgspec.structs.replace(found, text="")


def companions(count: int) -> list[GenerationRequest]:
    hows: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"seed": None},
        {"top_k": 5, "logprobs": 1},
        {"min_p": 0.1, "prompt_logprobs": 0},
        {"pooling": "mean"},
    ]
    return [params([i, *range(60)], f"c{i}", **hows[i % len(hows)]) for i in range(count)]


@pytest.mark.parametrize("how", [RICH, {"temperature": 0.0, **RICH, "top_p": 0.0}, {}], ids=["rich", "greedy", "plain"])
def test_a_request_gets_the_same_alone_and_among_others(model: Path, how: dict[str, Any]) -> None:
    expected = alone(model, params(**how))
    assert len(expected.token_ids) == 40
    for options in ({}, {"max_batch_tokens": 7}, {"max_batch_tokens": 64, "max_batch_size": 8}):
        engine = make_engine(model, **options)
        for _ in range(2):  # the second time its prefix is in the cache
            mine, *_ = run(engine, [params(**how), *companions(7)]).values()
            assert isinstance(mine, Delta)
            assert msgspec.structs.replace(mine, text="") == expected


def test_preemption_changes_neither_tokens_nor_logprobs(model: Path) -> None:
    expected = alone(model, params(**RICH))
    engine = make_engine(model, max_batch_tokens=400, max_batch_size=100)
    num_requests = engine.stats().num_blocks // 5  # their prompts take 4 blocks each, and their answers 2 more
    requests = [params(**RICH, name=f"m{i}") for i in range(num_requests)]
    found = run(engine, [*companions(6), *requests])
    mine = [request for request in found if request.request_id.startswith("m")]
    assert any(request.num_preemptions for request in mine)
    for request in mine:
        delta = found[request]
        assert isinstance(delta, Delta)
        assert msgspec.structs.replace(delta, text="") == expected


def test_prompt_logprobs_are_those_of_generating_the_prompt(model: Path) -> None:
    """What the model thinks of a token is the same when it reads it and when it might have drawn it."""
    told = alone(model, params(prompt_logprobs=5, max_tokens=1)).prompt_logprobs
    assert [each.token_id for each in told] == PROMPT[1:]
    for end in (1, 2, 17, 32, 33, 49):
        drawn = alone(model, params(PROMPT[:end], logprobs=5, max_tokens=1, logit_bias={PROMPT[end]: 100}))
        (expected,) = drawn.logprobs
        assert expected == told[end - 1]


def test_echo_of_a_prompt_without_an_answer(model: Path) -> None:
    found = alone(model, params(prompt_logprobs=0, max_tokens=0))
    assert [each.token_id for each in found.prompt_logprobs] == PROMPT[1:]
    assert all(isinstance(each, TokenLogprobs) and each.logprob < 0 for each in found.prompt_logprobs)
    assert alone(model, params([5], prompt_logprobs=0, max_tokens=0)).prompt_logprobs == ()


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_embeddings_do_not_depend_on_chunks_company_or_the_cache(model: Path, pooling: Any) -> None:
    expected = alone(model, params(pooling=pooling)).embedding
    assert expected is not None
    assert math.hypot(*expected) == pytest.approx(1, abs=1e-5)
    assert len(expected) == HIDDEN
    other = alone(model, params(PROMPT[:-1], pooling=pooling)).embedding
    assert other is not None
    assert sum(a * b for a, b in zip(expected, other, strict=True)) < 0.999
    engine = make_engine(model, max_batch_tokens=7)
    for _ in range(2):
        mine, *_ = run(engine, [params(pooling=pooling), *companions(5)]).values()
        assert isinstance(mine, Delta)
        assert mine.embedding == expected
        assert mine.finish_reason == "stop"


def test_a_grammar_holds_its_own_request_alone(model: Path) -> None:
    grammar = Grammar(kind="regex", source="[0-9]{12}")
    free = params(name="free")
    held = params(grammar=grammar, ignore_eos=False, temperature=1.0)
    first, second, third = run(make_engine(model), [free, held, free]).values()
    assert isinstance(second, Delta)
    assert first == third
    text = "".join(VOCABULARY[token_id] for token_id in second.token_ids if token_id != EOS)
    assert text.isdigit()
    assert len(text) == 12
    assert second.finish_reason == "stop"


def test_a_request_whose_numbers_break_ends_alone(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLHOUSE_KERNELS", "reference")  # its embedding can be spoilt: the loader refuses NaN in files
    runner = Runner(EngineOptions(model=str(model), kv_cache_mb=1))
    decoder = runner._model
    weight, bias = decoder.embedding.data
    spoilt = PackedWeight((weight.clone(), bias), *weight.shape)  # of its own: the head is the same table
    spoilt.data[0][251] = math.nan
    object.__setattr__(decoder, "embedding", spoilt)
    engine = Engine(EngineOptions(model=str(model), kv_cache_mb=1), runner)
    bad = [*PROMPT, 251]
    requests = [
        params(name="good"),
        params(bad),
        params(bad, prompt_logprobs=0, max_tokens=0),
        params(bad, pooling="mean"),
        params(bad, pooling="last"),
    ]
    good, *broken = run(engine, requests).values()
    assert isinstance(good, Delta)
    assert good.token_ids == alone(model, params()).token_ids
    assert all(isinstance(error, LogitsNotFinite) for error in broken)


def test_a_request_that_may_say_nothing_ends_alone(model: Path) -> None:
    silent = params(logit_bias=dict.fromkeys(range(len(VOCABULARY)), -100))
    good, error = run(make_engine(model), [params(), silent]).values()
    assert isinstance(good, Delta)
    assert isinstance(error, EngineError)
    assert "logit_bias" in str(error)
