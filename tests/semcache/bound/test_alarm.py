"""The alarm rings for a broken promise, and seldom for a kept one."""

import numpy as np
import pytest

from semcache.bound.alarm import Alarm


def rings_within(num_explored: int, true_rate: float, promised: float, seed: int) -> bool:
    alarm = Alarm(promised)
    return any(alarm.observe(bool(wrong)) for wrong in np.random.default_rng(seed).random(num_explored) < true_rate)


@pytest.mark.parametrize("promised", [0.005, 0.01, 0.05])
def test_a_kept_promise_rings_in_at_most_one_of_a_hundred_streams(promised: float) -> None:
    assert sum(rings_within(1000, promised, promised, seed) for seed in range(200)) <= 5


@pytest.mark.parametrize("promised", [0.005, 0.01, 0.05])
def test_every_fourth_answer_wrong_rings_within_a_hundred_explored_ones(promised: float) -> None:
    assert all(rings_within(100, 0.25, promised, seed) for seed in range(50))
