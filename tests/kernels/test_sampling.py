"""Each implementation of the sampling operations against definitions in float64, and each row against itself alone."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels.cpu.build import LEVELS, load_library
from kernels.cpu.program import Machine
from kernels.cpu.sampling import CpuSampling
from kernels.reference_sampling import ReferenceSampling
from kernels.sampling import (
    NOT_FINITE,
    NOTHING_LEFT,
    RowChoices,
    RowMasks,
    RowPenalties,
    SamplingOperations,
    SparseRows,
)
from tests.support.kernels import skipping_what_the_machine_lacks


@pytest.fixture(scope="module", params=["reference", *LEVELS])
def sampling(request: pytest.FixtureRequest) -> SamplingOperations:
    if request.param == "reference":
        return ReferenceSampling()
    with skipping_what_the_machine_lacks():
        return CpuSampling(Machine(load_library(LEVELS[request.param])))


def random_logits(rows: int, vocab_size: int, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    return spread * torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed))


def choices(
    rows: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, **more: Any
) -> RowChoices:
    """The same for each row, but for `uniform`: evenly over [0, 1)."""
    floats = (np.full(rows, value, np.float32) for value in (temperature, top_p, min_p))
    temperatures, top_ps, min_ps = floats
    uniform = (np.arange(rows) + 0.5) / rows
    return RowChoices(temperatures, np.full(rows, top_k, np.int32), top_ps, min_ps, uniform, **more)


def kept_by_definition(logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Probabilities [V] of one row's tokens in float64, after all filters."""
    scaled = logits.double().numpy() / temperature
    order = np.argsort(-scaled, kind="stable")
    weights = np.exp(scaled[order] - scaled.max())
    weights[top_k if top_k else len(weights) :] = 0
    weights[np.cumsum(weights) - weights >= top_p * weights.sum()] = 0
    weights[weights < min_p] = 0
    result = np.zeros(len(scaled))
    result[order] = weights / weights.sum()
    return result


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.6, 0, 1.0, 0.0),
        (1.0, 1, 1.0, 0.0),
        (1.0, 40, 1.0, 0.0),
        (1.5, 500, 1.0, 0.0),
        (1.0, 0, 0.9, 0.0),
        (2.0, 0, 0.999, 0.0),
        (1.0, 0, 1e-6, 0.0),
        (1.0, 0, 1.0, 0.1),
        (1.3, 50, 0.8, 0.05),
        (1.3, 700, 0.5, 0.3),
        (1.0, 10**6, 0.7, 0.0),
    ],
)
@pytest.mark.parametrize("vocab_size", [1, 7, 255, 256, 257, 1000])
def test_evenly_spread_uniforms_give_each_token_its_share(
    sampling: SamplingOperations, vocab_size: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    how = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    row, num_draws = random_logits(1, vocab_size, seed=vocab_size), 2000
    chosen = sampling.choose(row.expand(num_draws, -1).contiguous(), choices(num_draws, **how))
    expected = kept_by_definition(row[0], **how)
    counts = np.bincount(chosen, minlength=vocab_size)
    assert counts[expected == 0].sum() == 0
    assert abs(counts - num_draws * expected).max() <= 1.01
    assert chosen == sorted(chosen)  # the distribution function is inverted in the order of ids


def test_among_equals_filters_keep_the_first(sampling: SamplingOperations) -> None:
    row = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.0]).repeat(60)  # 180 of the larger
    for how, kept in (
        ({"top_k": 100}, [i for i in range(360) if row[i] == 1][:100]),
        ({"top_k": 181}, [i for i in range(360) if row[i] == 1 or i == 0]),
        ({"top_p": 0.3}, [i for i in range(360) if row[i] == 1][: math.ceil(0.3 * (180 + 180 / math.e))]),
        ({"top_k": 90, "top_p": 0.5}, [i for i in range(360) if row[i] == 1][:45]),
        ({"min_p": 0.9}, [i for i in range(360) if row[i] == 1]),
    ):
        chosen = sampling.choose(row.expand(3000, -1).contiguous(), choices(3000, **how))
        assert sorted(set(chosen)) == kept, how


def mixture(rows: int, vocab_size: int) -> RowChoices:
    """Everything at once, in other combinations in each row."""
    rng = np.random.default_rng(1)

    def sparse(most: int, values: Any) -> SparseRows:
        sizes = rng.integers(0, most, rows)
        ids = np.concatenate([rng.choice(vocab_size, size, replace=False) for size in sizes]).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return SparseRows(offsets, ids, values(len(ids)).astype(np.float32))

    bits = rng.integers(-(2**31), 2**31, (3, -(-vocab_size // 32))).astype(np.int32)
    bits[1] = -1
    bits[2, 1:] = 0
    scales = (rng.uniform(0.5, 2, rows).astype(np.float32) for _ in range(3))
    return RowChoices(
        temperature=rng.choice([0, 0.7, 1, 1.5], rows).astype(np.float32),
        top_k=rng.choice([0, 0, 1, 5, 40, 300], rows).astype(np.int32),
        top_p=rng.choice([1, 0.9, 0.5, 0.99], rows).astype(np.float32),
        min_p=rng.choice([0, 0, 0.1, 0.5], rows).astype(np.float32),
        uniform=rng.random(rows),
        masks=RowMasks(np.array([row % 5 - 2 if row % 5 > 1 else -1 for row in range(rows)], np.int32), bits),
        bias=sparse(6, lambda n: rng.normal(size=n)),
        penalties=RowPenalties(sparse(60, lambda n: rng.integers(0, 4, n)), *scales),
    )


@pytest.mark.parametrize("vocab_size", [64, 300, 2500])
def test_mixtures_agree_with_the_twin(sampling: SamplingOperations, vocab_size: int) -> None:
    logits, rows = random_logits(150, vocab_size), mixture(150, vocab_size)
    found = sampling.choose(logits, rows)
    # Two implementations round differently, so a uniform number on the edge of a token's share may fall to either side.
    assert sum(a != b for a, b in zip(found, ReferenceSampling().choose(logits, rows), strict=True)) <= 1
    assert min(found) >= 0
    assert len(set(found)) > 30


def one_row(sparse: SparseRows, row: int) -> SparseRows:
    part = slice(sparse.offsets[row], sparse.offsets[row + 1])
    return SparseRows(
        np.array([0, part.stop - part.start], np.int32), sparse.token_ids[part].copy(), sparse.values[part].copy()
    )


def only(rows: RowChoices, row: int) -> RowChoices:
    assert rows.masks is not None
    assert rows.bias is not None
    assert rows.penalties is not None
    penalties = rows.penalties
    at = slice(row, row + 1)
    return replace(
        rows,
        **{name: getattr(rows, name)[at] for name in ("temperature", "top_k", "top_p", "min_p", "uniform")},
        masks=RowMasks(rows.masks.index[at], rows.masks.bits),
        bias=one_row(rows.bias, row),
        penalties=RowPenalties(
            one_row(penalties.counts, row), penalties.repetition[at], penalties.frequency[at], penalties.presence[at]
        ),
    )


def test_a_row_gives_the_same_alone_and_among_others(sampling: SamplingOperations) -> None:
    logits, rows = random_logits(33, 3000), mixture(33, 3000)
    together = sampling.choose(logits, rows)
    logprobs = sampling.logprobs(logits, together, 5)
    for row in range(33):
        alone = logits[row : row + 1]
        assert sampling.choose(alone, only(rows, row)) == together[row : row + 1]
        found = sampling.logprobs(alone, together[row : row + 1], 5)
        assert found.chosen[0] == logprobs.chosen[row]
        assert np.array_equal(found.top[0], logprobs.top[row])
        assert np.array_equal(found.top_ids[0], logprobs.top_ids[row])


def test_logits_are_left_as_they_are(sampling: SamplingOperations) -> None:
    logits = random_logits(20, 500)
    before = logits.clone()
    sampling.choose(logits, mixture(20, 500))
    sampling.logprobs(logits, sampling.argmax(logits), 3)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("vocab_size", [1, 15, 16, 17, 300, 5001])
def test_argmax_is_the_first_of_the_largest(sampling: SamplingOperations, vocab_size: int) -> None:
    logits = random_logits(5, vocab_size).round()
    wanted = [int(np.argmax(row)) for row in logits.numpy()]
    assert sampling.argmax(logits) == wanted
    assert sampling.choose(logits, choices(5, temperature=0.0)) == wanted


@pytest.mark.parametrize("place", [0, 20, 255, 256, 299])
def test_rows_that_are_broken_are_marked_and_the_others_are_not(sampling: SamplingOperations, place: int) -> None:
    logits = random_logits(5, 300)
    logits[1, place] = math.nan
    logits[2, place] = math.inf
    logits[3] = -math.inf
    for found in (
        sampling.argmax(logits),
        sampling.choose(logits, choices(5)),
        sampling.choose(logits, choices(5, top_k=5, top_p=0.5)),
        sampling.choose(logits, choices(5, temperature=0.0)),
    ):
        assert found[1:4] == [NOT_FINITE, NOT_FINITE, NOTHING_LEFT]
        assert min(found[0], found[4]) >= 0
    logprobs = sampling.logprobs(logits, [place] * 5, 2)
    assert np.isnan(logprobs.chosen[1:3]).all()
    assert np.isfinite(logprobs.chosen[[0, 4]]).all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("place", [0, 20, 299])
def test_a_bias_that_makes_no_number_marks_its_row(
    sampling: SamplingOperations, place: int, temperature: float
) -> None:
    bias = SparseRows(np.array([0, 1, 1], np.int32), np.array([place], np.int32), np.array([math.nan], np.float32))
    first, second = sampling.choose(random_logits(2, 300), choices(2, temperature, bias=bias))
    assert first == NOT_FINITE
    assert second >= 0


def test_a_bias_of_minus_infinity_bans(sampling: SamplingOperations) -> None:
    offsets = np.array([0, 4, 4], np.int32)
    bans = SparseRows(offsets, np.arange(4, dtype=np.int32), np.full(4, -np.inf, np.float32))
    logits = torch.zeros(2, 4)
    assert sampling.choose(logits, choices(2, bias=bans)) == [NOTHING_LEFT, 3]


@pytest.mark.parametrize(("vocab_size", "num_top"), [(1, 1), (9, 9), (300, 0), (300, 20), (5001, 5)])
def test_logprobs_are_the_log_softmax(sampling: SamplingOperations, vocab_size: int, num_top: int) -> None:
    logits = random_logits(6, vocab_size)
    token_ids = [row * 7 % vocab_size for row in range(6)]
    wanted = torch.log_softmax(logits.double(), dim=1)
    found = sampling.logprobs(logits, token_ids, num_top)
    assert found.chosen == pytest.approx(wanted[range(6), token_ids].numpy(), abs=3e-6)
    values, ids = wanted.topk(num_top, dim=1)
    assert np.array_equal(found.top_ids, ids.numpy())
    assert found.top == pytest.approx(values.numpy(), abs=3e-6)
