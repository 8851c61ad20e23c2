"""Distributions by chi-squared, filters at their edges, and randomness that belongs to (seed, position) alone."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from engine.sampler import RowSampling, Sampler, uniforms


def row(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = 0, position: int = 0
) -> RowSampling:
    return RowSampling(temperature, top_k, top_p, seed, position)


def draws(logits: torch.Tensor, count: int, **how: float) -> np.ndarray:
    rows = [row(seed=7, position=position, **how) for position in range(count)]  # type: ignore[arg-type]
    return np.bincount(Sampler().choose(logits.expand(count, -1), rows), minlength=len(logits))


LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -2.5])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    expected = torch.softmax(LOGITS / temperature, 0).double().numpy()
    assert chisquare(draws(LOGITS, 20_000, temperature=temperature), 20_000 * expected / expected.sum()).pvalue > 0.001


def test_draws_follow_the_softmax_over_many_chunks_of_a_vocabulary() -> None:
    logits = torch.full((1000,), -30.0)
    logits[[3, 255, 256, 700, 999]] = torch.tensor([1.0, 0.0, 0.5, 1.5, 0.2])
    expected = torch.softmax(logits[[3, 255, 256, 700, 999]], 0).double().numpy()
    counts = draws(logits, 20_000)[[3, 255, 256, 700, 999]]
    assert counts.sum() == 20_000
    assert chisquare(counts, 20_000 * expected / expected.sum()).pvalue > 0.001


@pytest.mark.parametrize("how", [{"top_k": 3}, {"top_p": 0.75}, {"top_k": 5, "top_p": 0.6}])
def test_filters_keep_the_head_of_the_distribution(how: dict[str, float]) -> None:
    kept = torch.softmax(LOGITS, 0)[: int(how.get("top_k", 10))].double()
    kept /= kept.sum()
    kept = kept[kept.cumsum(0) - kept < how.get("top_p", 1.0)]
    expected = (kept / kept.sum()).numpy()
    counts = draws(LOGITS, 20_000, **how)
    assert counts[len(expected) :].sum() == 0
    assert chisquare(counts[: len(expected)], 20_000 * expected).pvalue > 0.001


def test_a_wide_nucleus_beside_a_narrow_one() -> None:
    flat, peaked = torch.zeros(5000), torch.zeros(5000)
    peaked[17] = 50.0
    rows = [row(top_p=0.9, seed=1, position=position // 2) for position in range(400)]
    chosen = Sampler().choose(torch.stack([flat, peaked]).repeat(200, 1), rows)
    assert set(chosen[1::2]) == {17}
    assert len(set(chosen[::2])) > 150


@pytest.mark.parametrize(
    "how",
    [{"temperature": 0.0}, {"temperature": 1e-9}, {"temperature": 1e-5}, {"top_p": 0.0}, {"top_p": 1e-9}, {"top_k": 1}],
)
def test_extremes_are_the_most_likely_token(how: dict[str, float]) -> None:
    assert draws(LOGITS, 200, **how)[0] == 200


@pytest.mark.parametrize("how", [{"top_k": 10_000}, {"top_k": 0}, {"top_k": -1}, {"top_p": 1.0}])
def test_filters_that_keep_everything_change_nothing(how: dict[str, float]) -> None:
    assert np.array_equal(draws(LOGITS, 500, **how), draws(LOGITS, 500))


def test_huge_logits_and_masked_tokens_are_no_trouble() -> None:
    logits = torch.tensor([1e30, -1e30, -float("inf"), 1e30])
    for how in ({}, {"top_p": 0.9}, {"top_k": 3}, {"temperature": 2.0}):
        counts = draws(logits, 200, **how)  # type: ignore[arg-type]
        assert counts[[0, 3]].sum() == 200


def test_a_seeded_row_does_not_see_its_neighbours() -> None:
    logits = torch.randn(9, 3000, generator=torch.Generator().manual_seed(3))
    mine = row(seed=42, position=11)
    alone = Sampler().choose(logits[:1], [mine])[0]
    others = [row(seed=None), row(0.0), row(seed=42, position=12), row(top_k=4), row(top_p=0.5), row(0.3, seed=None)]
    for size in range(1, 8):
        assert Sampler().choose(logits[: size + 1], [mine, *(others * 2)[:size]])[0] == alone


def test_seeds_and_positions_give_different_streams_and_unseeded_rows_differ() -> None:
    logits = torch.zeros(64, 50_000)
    for rows in (
        [row(seed=i) for i in range(64)],
        [row(position=i) for i in range(64)],
        [row(seed=None)] * 64,
        [row(seed=-i) for i in range(64)],
    ):
        assert len(set(Sampler().choose(logits, rows))) > 60


def test_uniforms_are_uniform_and_uncorrelated() -> None:
    seeds, positions = np.meshgrid(np.arange(200, dtype=np.uint64), np.arange(200, dtype=np.uint64))
    values = uniforms(seeds.ravel(), positions.ravel())
    assert values.min() >= 0
    assert values.max() < 1
    assert chisquare(np.bincount((values * 64).astype(int), minlength=64)).pvalue > 0.001
    grid = values.reshape(200, 200)
    for neighbour in (np.roll(grid, 1, axis=0), np.roll(grid, 1, axis=1)):
        assert abs(np.corrcoef(grid.ravel(), neighbour.ravel())[0, 1]) < 0.02


@pytest.mark.parametrize(("top_k", "top_p"), [(200, 0.7), (129, 0.7), (128, 0.7), (300, 0.8), (0, 0.7)])
def test_top_p_counts_from_the_mass_that_top_k_leaves(top_k: int, top_p: float) -> None:
    """Against a full sort, where top-k is wider than the first candidates and the nucleus is not."""
    logits = 2 * torch.randn(2000, generator=torch.Generator().manual_seed(0))
    probabilities, ids = torch.softmax(logits.double(), 0).sort(descending=True)
    kept = probabilities[: top_k or None] / probabilities[: top_k or None].sum()
    kept = kept[kept.cumsum(0) - kept < top_p]
    counts = draws(logits, 20_000, top_k=top_k, top_p=top_p)[ids.numpy()]
    assert counts[len(kept) :].sum() == 0
    expected = (kept / kept.sum()).numpy()
    assert chisquare(counts[: len(kept)], 20_000 * expected / expected.sum()).pvalue > 0.001
