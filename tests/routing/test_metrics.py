"""The measures agree with what can be worked out by hand."""

import numpy as np
import pytest

from routing.metrics import apgr, calibration_error, estimate, f1_per_class, macro_f1


def test_f1_of_a_small_table() -> None:
    truth = np.array([0, 0, 1, 1, 2])
    guess = np.array([0, 1, 1, 1, -1])
    assert f1_per_class(truth, guess, 4) == pytest.approx([2 / 3, 0.8, 0.0, np.nan], nan_ok=True)
    assert macro_f1(truth, guess, 4) == pytest.approx((2 / 3 + 0.8) / 3)


def test_apgr_of_perfect_worst_and_random_order() -> None:
    weak = np.array([True] * 50 + [False] * 50)
    strong = np.ones(100, np.bool_)
    perfect = apgr(1.0 - weak, weak, strong)
    assert perfect == pytest.approx(0.75)  # the gap closes linearly over the first half, then stays closed
    assert apgr(1.0 * weak, weak, strong) == pytest.approx(0.25)
    random = np.random.default_rng(0)
    assert np.mean([apgr(random.random(100), weak, strong) for _ in range(200)]) == pytest.approx(0.5, abs=0.02)


def test_no_gap_has_no_apgr() -> None:
    same = np.array([True, False])
    assert np.isnan(apgr(np.array([0.1, 0.2]), same, same))


def test_calibration_error_is_the_mean_gap() -> None:
    assert calibration_error(np.full(10, 0.75), np.array([True] * 5 + [False] * 5)) == pytest.approx(0.25)
    assert calibration_error(np.array([1.0, 0.0]), np.array([True, False])) == pytest.approx(0)


def test_an_estimate_covers_its_value_and_repeats() -> None:
    values = np.random.default_rng(0).random(400)
    mean, low, high = estimate(lambda rows: float(values[rows].mean()), 400, seed=3)
    assert mean == values.mean()
    assert low < mean < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.2)
    assert estimate(lambda rows: float(values[rows].mean()), 400, seed=3) == (mean, low, high)
