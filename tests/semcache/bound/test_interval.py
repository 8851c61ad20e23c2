"""Clopper and Pearson's bound, held against what can be worked out by hand and against SciPy's beta distribution."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from semcache.bound.interval import trials_needed, upper_bound


@pytest.mark.parametrize(("rate", "needed"), [(0.01, 299), (0.05, 59), (0.005, 598)])
def test_the_trials_needed_without_an_error_are_those_of_the_rule_of_three(rate: float, needed: int) -> None:
    assert trials_needed(0, rate, 0.05) == needed


@pytest.mark.parametrize(("errors", "trials"), [(0, 10), (1, 10), (3, 500), (40, 1000), (9, 10), (0, 1)])
def test_the_bound_is_the_quantile_of_the_beta_distribution(errors: int, trials: int) -> None:
    assert upper_bound(errors, trials, 0.05) == pytest.approx(beta.ppf(0.95, errors + 1, trials - errors), abs=1e-6)


@pytest.mark.parametrize(("errors", "trials"), [(0, 0), (5, 5)])
def test_nothing_but_errors_bounds_nothing(errors: int, trials: int) -> None:
    assert upper_bound(errors, trials, 0.05) == 1.0


@given(st.integers(0, 60), st.sampled_from([0.005, 0.01, 0.02, 0.05, 0.3]), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_trials_needed_are_the_fewest_whose_bound_is_low_enough(errors: int, rate: float, doubt: float) -> None:
    needed = trials_needed(errors, rate, doubt)
    assert upper_bound(errors, needed, doubt) <= rate + 1e-9
    assert upper_bound(errors, needed - 1, doubt) > rate - 1e-9
    assert needed < trials_needed(errors + 1, rate, doubt)
