"""The threshold: as low as the bound allows, and no lower."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semcache.bound.calibration import CLOSED, calibrate, lowest_threshold
from semcache.bound.interval import upper_bound

scored = st.lists(st.tuples(st.sampled_from(np.linspace(0, 1, 21).tolist()), st.booleans()), min_size=1, max_size=300)


@given(scored, st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=60)
def test_from_the_threshold_on_the_bound_holds_and_at_no_lower_score(
    examples: list[tuple[float, bool]], rate: float
) -> None:
    scores, labels = np.array([score for score, _ in examples]), np.array([float(same) for _, same in examples])
    threshold = lowest_threshold(scores, labels, rate, 0.05)

    def limit(score: float) -> float:
        served = labels[scores >= score]
        return upper_bound(int((served == 0).sum()), len(served), 0.05)

    if threshold != CLOSED:
        assert limit(threshold) <= rate + 1e-9
    assert all(limit(score) > rate - 1e-9 for score in scores if score < threshold)


@given(scored)
@settings(max_examples=60)
def test_a_stricter_bound_never_serves_more(examples: list[tuple[float, bool]]) -> None:
    scores, labels = np.array([score for score, _ in examples]), np.array([float(same) for _, same in examples])
    thresholds = [lowest_threshold(scores, labels, rate, 0.05) for rate in (0.005, 0.01, 0.05, 0.2)]
    assert thresholds == sorted(thresholds, reverse=True)


def test_too_few_examples_open_nothing() -> None:
    assert lowest_threshold(np.ones(298), np.ones(298), 0.01, 0.05) == CLOSED
    assert lowest_threshold(np.ones(299), np.ones(299), 0.01, 0.05) == 1.0


def test_features_that_say_nothing_open_nothing() -> None:
    random = np.random.default_rng(0)
    rows, labels = random.normal(size=(2000, 8)), (random.random(2000) < 0.7).astype(float)
    assert calibrate(rows, labels, 0.05, 0.05).threshold == CLOSED


def test_a_fit_does_not_judge_what_it_has_learned_by_heart() -> None:
    """As many features as examples can tell all of them apart, and none of the next ones."""
    random = np.random.default_rng(0)
    rows, labels = random.normal(size=(150, 150)), (random.random(150) < 0.5).astype(float)
    assert calibrate(rows, labels, 0.05, 0.05).threshold == CLOSED


@pytest.mark.parametrize("kind", [0.0, 1.0])
def test_examples_of_one_kind_alone_can_be_calibrated(kind: float) -> None:
    rows = np.random.default_rng(0).normal(size=(500, 3))
    threshold = calibrate(rows, np.full(500, kind), 0.01, 0.05).threshold
    assert (threshold == CLOSED) == (kind == 0.0)
