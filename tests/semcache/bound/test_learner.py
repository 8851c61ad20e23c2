"""The learner on streams whose truth is known: the bound holds, hits are many, and a changed world closes it."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from semcache.bound.learner import Learner
from semcache.errors import CacheError

Requests = Iterator[tuple[np.ndarray, bool]]


def requests(seed: int, number: int, *, shift: float = 0.0) -> Requests:
    """Two features and whether the answers are the same: likelier the greater the first, less `shift`."""
    random = np.random.default_rng(seed)
    for row, draw in zip(random.normal(size=(number, 2)), random.random(number), strict=True):
        yield row, bool(draw < 1 / (1 + np.exp(-6.0 * (row[0] - shift))))


def served(learner: Learner, stream: Requests) -> list[bool]:
    """Of each served request, whether it was right."""
    outcomes = []
    for features, same in stream:
        decision = learner.decide(features)
        if decision == "serve":
            outcomes.append(same)
        else:
            learner.observe(features, same, explored=decision == "explore")
    return outcomes


@pytest.mark.parametrize("rate", [0.02, 0.05])
def test_the_bound_holds_in_at_least_95_of_100_runs_and_hits_are_had(rate: float) -> None:
    runs = [served(Learner(rate, 2, seed=seed), requests(seed, 2500)) for seed in range(20)]
    assert sum(run.count(False) > rate * len(run) for run in runs) <= 1
    assert sum(map(len, runs)) > 0.08 * 20 * 2500


def test_the_same_stream_and_seed_end_in_the_same_state() -> None:
    one, other = Learner(0.05, 2, seed=3), Learner(0.05, 2, seed=3)
    assert served(one, requests(1, 1500)) == served(other, requests(1, 1500))
    assert one.state() == other.state()


def test_nothing_is_served_before_the_bound_is_shown() -> None:
    learner = Learner(0.01, 2)
    assert served(learner, requests(0, 290)) == []
    assert not learner.is_open


def test_the_probability_grows_with_what_makes_answers_the_same() -> None:
    learner = Learner(0.05, 2)
    served(learner, requests(0, 1000))
    probabilities = [learner.probability(np.array([x, 0.0])) for x in np.linspace(-3, 3, 50)]
    assert probabilities == sorted(probabilities)


def test_a_slowly_refuted_score_is_learned_anew() -> None:
    learner = Learner(0.02, 2)
    served(learner, requests(0, 2000))
    served(learner, requests(1, 2000, shift=2.0))
    after = served(learner, requests(2, 3000, shift=2.0))
    assert after.count(False) <= 0.02 * len(after)


def test_when_what_looked_safe_turns_wrong_the_alarm_closes_at_once() -> None:
    """All requests look safe, so that only the explored ones tell that every other answer is wrong."""
    learner = Learner(0.02, 2)
    served(learner, requests(0, 2000))
    learner.refit()  # the next one is a hundred labels away
    assert learner.is_open
    outcomes = served(learner, ((np.array([3.0, 0.0]), bool(number % 2)) for number in range(2000)))
    assert learner.num_alarms == 1
    assert not learner.is_open
    assert len(outcomes) < 1000


def test_a_restored_learner_goes_on_where_the_other_stopped() -> None:
    learner = Learner(0.05, 2, seed=7)
    served(learner, requests(0, 1500))
    restored = Learner.restored(learner.state())
    assert (restored.threshold, len(restored.labels)) == (learner.threshold, len(learner.labels))
    for features, _ in requests(5, 50):
        assert restored.probability(features) == learner.probability(features)
    learner.refit()
    restored.refit()
    assert restored.threshold == pytest.approx(learner.threshold, abs=1e-4)


@given(st.binary(max_size=200))
def test_anything_else_is_no_state(data: bytes) -> None:
    with pytest.raises(CacheError, match="no state of a learner"):
        Learner.restored(data)


def test_a_cut_state_is_no_state() -> None:
    learner = Learner(0.05, 2)
    served(learner, requests(0, 500))
    state = learner.state()
    for end in range(0, len(state), 97):
        with pytest.raises(CacheError):
            Learner.restored(state[:end])


@given(st.lists(st.tuples(arrays(np.float64, 2), st.booleans(), st.booleans()), max_size=50))
@settings(max_examples=40)
def test_no_features_are_an_error(stream: list[tuple[np.ndarray, bool, bool]]) -> None:
    learner = Learner(0.2, 2)
    for features, same, explored in stream:
        learner.decide(features)
        learner.observe(features, same, explored=explored)
        assert 0.0 <= learner.probability(features) <= 1.0
    learner.refit()


def test_another_number_of_features_is_refused() -> None:
    with pytest.raises(CacheError, match=r"made for \(2,\)"):
        Learner(0.05, 2).observe(np.zeros(3), True)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, float("nan")])
def test_a_rate_that_bounds_nothing_is_refused(rate: float) -> None:
    with pytest.raises(CacheError, match="max_error_rate"):
        Learner(rate, 2)
