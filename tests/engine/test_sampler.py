"""Distributions by chi-squared against their definitions, edges, errors of one row, and randomness of a row's own."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from engine.errors import EngineError, InvalidRequest, LogitsNotFinite
from engine.grammar.masks import Mask
from engine.plan import Sample
from engine.request import Request, Status
from engine.sampling.sampler import Sampler
from engine.types import GenerationRequest, SamplingParams
from engine.validation import normalised
from kernels.reference_sampling import ReferenceSampling
from tests.engine.grammars import compiled

VOCAB = 10
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -2.5])


def make(prompt: Sequence[int] = (1,), answer: Sequence[int] = (), **sampling: Any) -> Request:
    return request_with(normalised(SamplingParams(**{"seed": 0, **sampling}), 10**9), prompt, answer)


def request_with(sampling: SamplingParams, prompt: Sequence[int], answer: Sequence[int]) -> Request:
    params = GenerationRequest(request_id="r", prompt_token_ids=list(prompt), sampling=sampling)
    return Request(params=params, token_ids=[*prompt, *answer], num_prompt=len(prompt))


def sampler() -> Sampler:
    return Sampler(ReferenceSampling())


def ids(samples: Sequence[Sample | EngineError]) -> list[int]:
    assert all(isinstance(sample, Sample) for sample in samples), samples
    return [sample.token_id for sample in samples if isinstance(sample, Sample)]


def draws(
    logits: torch.Tensor, count: int, prompt: Sequence[int] = (1,), answer: Sequence[int] = (), **sampling: Any
) -> np.ndarray:
    """How often each token is drawn by `count` requests that differ in their seeds alone."""
    params = normalised(SamplingParams(**sampling), 10**9)
    seeded = (msgspec.structs.replace(params, seed=seed) for seed in range(count))
    requests = [request_with(each, prompt, answer) for each in seeded]
    chosen = ids(sampler().choose(logits.expand(count, -1), requests))
    return np.bincount(chosen, minlength=len(logits))


def definition(
    logits: torch.Tensor, temperature: float = 1, top_k: int = 0, top_p: float = 1, min_p: float = 0
) -> np.ndarray:
    """The distribution in float64, written as the papers do: sort, cut, and normalise after each filter."""
    scaled = logits.double().numpy() / temperature
    order = np.argsort(-scaled, kind="stable")
    sorted_p = np.exp(scaled[order] - scaled.max())
    kept = np.ones(len(sorted_p), bool)
    if top_k:
        kept[top_k:] = False
    sorted_p = sorted_p * kept / (sorted_p * kept).sum()
    kept &= np.cumsum(sorted_p) - sorted_p < top_p
    kept &= sorted_p >= min_p * sorted_p[0]
    result = np.zeros(len(sorted_p))
    result[order] = sorted_p * kept / (sorted_p * kept).sum()
    return result


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_p": 0.75},
        {"min_p": 0.15},
        {"top_k": 5, "top_p": 0.6},
        {"top_p": 0.9, "min_p": 0.1},
        {"temperature": 1.5, "top_k": 7, "top_p": 0.8, "min_p": 0.2},
    ],
)
def test_draws_follow_the_definition(how: dict[str, Any]) -> None:
    expected = definition(LOGITS, **how)
    counts = draws(LOGITS, 20_000, **how)
    assert counts[expected == 0].sum() == 0
    assert chisquare(counts[expected > 0], 20_000 * expected[expected > 0]).pvalue > 0.001


def test_draws_follow_the_softmax_over_many_chunks_of_a_vocabulary() -> None:
    logits = torch.full((1000,), -30.0)
    logits[[3, 255, 256, 700, 999]] = torch.tensor([1.0, 0.0, 0.5, 1.5, 0.2])
    expected = definition(logits)[[3, 255, 256, 700, 999]]
    counts = draws(logits, 20_000)[[3, 255, 256, 700, 999]]
    assert counts.sum() == 20_000
    assert chisquare(counts, 20_000 * expected / expected.sum()).pvalue > 0.001


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 0.0},
        {"temperature": 1e-9},
        {"temperature": 1e-5},
        {"top_p": 0.0},
        {"top_p": 1e-9},
        {"top_k": 1},
        {"min_p": 1.0},
    ],
)
def test_extremes_are_the_most_likely_token(how: dict[str, float]) -> None:
    assert draws(LOGITS, 200, **how)[0] == 200


@pytest.mark.parametrize("how", [{"top_k": 10_000}, {"top_k": 0}, {"top_k": -1}, {"top_p": 1.0}, {"min_p": 0.0}])
def test_filters_that_keep_everything_change_nothing(how: dict[str, float]) -> None:
    assert np.array_equal(draws(LOGITS, 500, **how), draws(LOGITS, 500))


def test_penalties_computed_by_hand() -> None:
    """Prompt 0 1, answer 2 2 3 3 3; repetition 2 over both, frequency 0.5 and presence 0.25 over the answer."""
    logits = torch.tensor([4.0, -1.0, 4.0, -1.0, 1.6, 0.0])
    how = {"repetition_penalty": 2.0, "frequency_penalty": 0.5, "presence_penalty": 0.25}
    shaped = np.array(
        [
            4.0 / 2,  # in the prompt alone: divided, as it is positive
            -1.0 * 2,  # in the prompt alone: multiplied, as it is negative
            4.0 / 2 - 2 * 0.5 - 0.25,  # twice in the answer
            -1.0 * 2 - 3 * 0.5 - 0.25,  # three times in the answer
            1.6,  # in neither
            0.0,
        ]
    )
    expected = np.exp(shaped) / np.exp(shaped).sum()
    counts = draws(logits, 20_000, [0, 1], [2, 2, 3, 3, 3], **how)
    assert chisquare(counts, 20_000 * expected).pvalue > 0.001


def test_counts_follow_the_answer_as_it_grows() -> None:
    """Greedy with a presence penalty walks down the logits; a frequency penalty counts what came before."""
    chooser = sampler()
    request = make([9], temperature=0.0, presence_penalty=2.0)
    for expected in (0, 1, 2, 3, 0):
        # After 0, 1, 2 and 3 the logits are 0, -0.5, -1 and -1.5 for them, and 0 for token 4: the first among equals.
        (sample,) = chooser.choose(LOGITS[None], [request])
        assert isinstance(sample, Sample)
        assert sample.token_id == expected
        request.token_ids.append(sample.token_id)


def test_penalties_do_not_count_the_prompt_for_presence_and_frequency() -> None:
    how = {"temperature": 0.0, "presence_penalty": 2.0, "frequency_penalty": 2.0}
    assert ids(sampler().choose(LOGITS[None], [make([0, 0, 0], **how)])) == [0]
    assert ids(sampler().choose(LOGITS[None], [make([0, 0, 0], repetition_penalty=2.0, temperature=0.0)])) == [1]


def test_a_new_sampler_counts_what_another_counted() -> None:
    """As after a preemption or on another worker: the counts are a function of the tokens alone."""
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(5))
    how = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.3, "seed": 9}
    steady, request, chosen = sampler(), make([3, 4, 4], **how), []
    for _ in range(100):  # further than the room of the first counts
        fresh = make([3, 4, 4], request.token_ids[3:], **how)
        assert ids(sampler().choose(logits, [fresh])) == ids(steady.choose(logits, [request]))
        chosen += ids(steady.choose(logits, [request]))
        request.token_ids.append(chosen[-1])
    assert len(set(chosen)) > 10


def test_a_bias_moves_bans_and_forces() -> None:
    assert ids(sampler().choose(LOGITS[None], [make(logit_bias={4: 2.5}, temperature=0.0)])) == [4]
    expected = definition(LOGITS + torch.eye(VOCAB)[7] * 3)
    counts = draws(LOGITS, 20_000, logit_bias={7: 3.0})
    assert chisquare(counts, 20_000 * expected).pvalue > 0.001
    assert draws(LOGITS, 500, logit_bias={0: -100, 1: -100})[:2].sum() == 0
    assert draws(LOGITS, 500, logit_bias={9: 100})[9] == 500
    huge = torch.tensor([[1e4, 0.0]])
    assert ids(sampler().choose(huge, [make(logit_bias={0: -100})])) == [1]


def test_a_request_that_bans_everything_ends_alone() -> None:
    banned = make(logit_bias=dict.fromkeys(range(VOCAB), -100.0))
    first, second, third = sampler().choose(LOGITS.expand(3, -1), [make(temperature=0.0), banned, make(seed=3)])
    assert isinstance(first, Sample)
    assert isinstance(second, InvalidRequest)
    assert second.param == "logit_bias"
    assert third == sampler().choose(LOGITS[None], [make(seed=3)])[0]


def mask(*allowed: int, vocab_size: int = VOCAB) -> Mask:
    bits = np.zeros(-(-vocab_size // 32) * 32, bool)
    bits[list(allowed)] = True
    return np.packbits(bits, bitorder="little").view(np.int32)


def test_a_grammars_mask_is_for_its_row_alone() -> None:
    logits = torch.randn(100, generator=torch.Generator().manual_seed(1)).expand(200, -1)
    requests = [make(seed=seed) for seed in range(200)]
    allowed = [5, 31, 32, 63, 64, 99]
    masks = {row: mask(*allowed, vocab_size=100) for row in range(0, 200, 2)}
    masked = ids(sampler().choose(logits, requests, masks))
    free = ids(sampler().choose(logits, requests))
    assert masked[1::2] == free[1::2]
    assert set(masked[::2]) <= set(allowed)
    expected = definition(logits[0])[allowed]
    counts = np.bincount(masked[::2], minlength=100)[allowed]
    assert chisquare(counts, 100 * expected / expected.sum()).pvalue > 0.001


def test_a_mask_goes_before_penalties_and_an_empty_one_is_an_error() -> None:
    greedy = make([0], [0], temperature=0.0, presence_penalty=2.0, logit_bias={3: 10.0})
    assert ids(sampler().choose(LOGITS[None], [greedy], {0: mask(0, 5)})) == [0]
    (error,) = sampler().choose(LOGITS[None], [make()], {0: mask()})
    assert isinstance(error, InvalidRequest)
    assert error.param == "grammar"


def test_a_grammar_that_has_failed_says_why() -> None:
    request = make(logit_bias={3: 1.0})
    request.matcher = compiled("regex", "ab")
    with pytest.raises(EngineError):
        request.matcher.accept(ord("x"))  # as good as a mask that would have been too much work
    (error,) = sampler().choose(LOGITS[None], [request], {0: mask()})
    assert isinstance(error, InvalidRequest)
    assert error.param == "grammar"
    assert "any further: " in str(error)


@pytest.mark.parametrize("how", [{"temperature": 0.0}, {}, {"top_p": 0.5}, {"repetition_penalty": 2.0, "logprobs": 3}])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 6, VOCAB - 1])
def test_a_row_that_is_not_finite_ends_alone(how: dict[str, Any], bad: float, place: int) -> None:
    logits = LOGITS.repeat(3, 1)
    logits[1, place] = bad
    found = sampler().choose(logits, [make(**how), make(**how), make(**how)])
    assert isinstance(found[1], LogitsNotFinite)
    assert found[0] == found[2] == sampler().choose(LOGITS[None], [make(**how)])[0]


def test_minus_infinity_is_a_token_that_never_comes_and_only_that() -> None:
    logits = torch.tensor([1.0, -math.inf, 1.0])
    for how in ({}, {"top_p": 0.9}, {"top_k": 2}, {"min_p": 0.1}, {"temperature": 2.0}):
        counts = draws(logits, 200, **how)
        assert counts[1] == 0
        assert counts.min() == 0 < counts[0]
    (error,) = sampler().choose(torch.full((1, 3), -math.inf), [make()])
    assert isinstance(error, LogitsNotFinite)


def test_huge_logits_are_no_trouble() -> None:
    logits = torch.tensor([1e30, -1e30, -math.inf, 1e30])
    for how in ({}, {"top_p": 0.9}, {"top_k": 3}, {"temperature": 2.0}, {"min_p": 0.5}):
        assert draws(logits, 200, **how)[[0, 3]].sum() == 200


def test_logprobs_are_the_models_own() -> None:
    logits = torch.randn(4, 1000, generator=torch.Generator().manual_seed(2)) * 4
    expected = torch.log_softmax(logits.double(), 1)
    how = [
        {"temperature": 0.0, "logprobs": 5},
        {"logprobs": 0},
        {},
        {"top_k": 2, "logprobs": 20, "logit_bias": {7: 99}},
    ]
    requests = [make(**each) for each in how]
    found = sampler().choose(logits, requests)
    for row, (sample, each) in enumerate(zip(found, how, strict=True)):
        assert isinstance(sample, Sample)
        if "logprobs" not in each:
            assert sample.logprobs is None
            continue
        assert sample.logprobs is not None
        assert sample.logprobs.token_id == sample.token_id
        assert sample.logprobs.logprob == pytest.approx(float(expected[row, sample.token_id]), abs=1e-4)
        values, order = expected[row].topk(each["logprobs"])
        assert [top.token_id for top in sample.logprobs.top] == order.tolist()
        assert [top.logprob for top in sample.logprobs.top] == pytest.approx(values.tolist(), abs=1e-4)
    assert ids(found)[3] == 7
    assert ids(found) == ids(sampler().choose(logits, [make(**{**each, "logprobs": None}) for each in how]))


def test_more_logprobs_than_tokens_and_impossible_ones() -> None:
    (sample,) = sampler().choose(torch.tensor([[0.0, -math.inf]]), [make(logprobs=20, temperature=0.0)])
    assert isinstance(sample, Sample)
    assert sample.logprobs is not None
    assert [(top.token_id, top.logprob) for top in sample.logprobs.top] == [(0, 0.0), (1, -9999.0)]


MIXTURE: list[dict[str, Any]] = [
    {"seed": 1},
    {"temperature": 0.0},
    {"seed": 42, "temperature": 1.3},
    {"top_k": 4, "logprobs": 2},
    {"top_p": 0.5, "repetition_penalty": 1.2},
    {"min_p": 0.3, "logit_bias": {3: 1.0}},
    {"frequency_penalty": 1.0, "top_p": 0.95, "top_k": 300},
]


@pytest.mark.parametrize(
    "mine",
    [
        {"seed": 42},
        {"seed": 42, "top_p": 0.9},
        {"seed": 42, "top_k": 20, "logprobs": 3},
        {"seed": 42, "min_p": 0.05, "presence_penalty": 1.0},
    ],
)
def test_a_seeded_row_does_not_see_its_neighbours(mine: dict[str, Any]) -> None:
    logits = 3 * torch.randn(9, 3000, generator=torch.Generator().manual_seed(3))
    (alone,) = sampler().choose(logits[:1], [make([1, 2, 3], [4], **mine)])
    for size in range(1, 8):
        requests = [make([1, 2, 3], [4], **mine), *(make([5, 6], **each) for each in MIXTURE[:size])]
        assert sampler().choose(logits[: size + 1], requests)[0] == alone
        reversed_order = sampler().choose(logits[: size + 1].flip(0), requests[::-1])
        assert reversed_order[-1] == alone


def test_seeds_and_positions_give_different_streams() -> None:
    logits = torch.zeros(64, 50_000)
    for requests in (
        [make(seed=i) for i in range(64)],
        [make(answer=[1] * i) for i in range(64)],
        [make(seed=-i) for i in range(64)],
        [make(seed=None) for _ in range(64)],  # validation draws one for each
    ):
        assert len(set(ids(sampler().choose(logits, requests)))) > 60


def test_a_wide_nucleus_beside_a_narrow_one() -> None:
    flat, peaked = torch.zeros(5000), torch.zeros(5000)
    peaked[17] = 50.0
    requests = [make(top_p=0.9, seed=i // 2) for i in range(400)]
    chosen = ids(sampler().choose(torch.stack([flat, peaked]).repeat(200, 1), requests))
    assert set(chosen[1::2]) == {17}
    assert len(set(chosen[::2])) > 150


@pytest.mark.parametrize(("top_k", "top_p"), [(200, 0.7), (129, 0.7), (128, 0.7), (300, 0.8), (0, 0.7)])
def test_top_p_counts_from_the_mass_that_top_k_leaves(top_k: int, top_p: float) -> None:
    """Where top-k is wider than the first candidates and the nucleus is not."""
    logits = 2 * torch.randn(2000, generator=torch.Generator().manual_seed(0))
    expected = definition(logits, top_k=top_k, top_p=top_p)
    counts = draws(logits, 2000, top_k=top_k, top_p=top_p)
    assert counts[expected == 0].sum() == 0
    assert chisquare(counts[expected > 0], 2000 * expected[expected > 0]).pvalue > 0.001


def test_nothing_is_kept_of_requests_that_are_finished() -> None:
    chooser = sampler()
    for _ in range(1000):
        request = make(presence_penalty=1.0)
        chooser.choose(LOGITS[None], [request])
        request.status = Status.FINISHED
    assert len(chooser._recipes) <= 128
