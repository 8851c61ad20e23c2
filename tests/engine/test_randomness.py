"""Randomness as a function of (seed, position)."""

import numpy as np
from scipy.stats import chisquare

from engine.sampling.randomness import uniforms


def test_uniforms_are_uniform_and_uncorrelated() -> None:
    seeds, positions = np.meshgrid(np.arange(200, dtype=np.uint64), np.arange(200, dtype=np.uint64))
    values = uniforms(seeds.ravel(), positions.ravel())
    assert values.min() >= 0
    assert values.max() < 1
    assert chisquare(np.bincount((values * 64).astype(int), minlength=64)).pvalue > 0.001
    grid = values.reshape(200, 200)
    for neighbour in (np.roll(grid, 1, axis=0), np.roll(grid, 1, axis=1)):
        assert abs(np.corrcoef(grid.ravel(), neighbour.ravel())[0, 1]) < 0.02
