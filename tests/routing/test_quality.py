"""Quality moves a decision monotonically, and only as far as the numbers say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.quality import scores, temper
from routing.types import Tier

share = st.floats(0, 1)


def tiers(*floors: float) -> list[Tier]:
    return [Tier(name=str(index), models=(), min_probability=floor) for index, floor in enumerate(floors)]


def test_scores_rise_from_the_weak_model_to_the_strong_one() -> None:
    assert scores(tiers(0, 0, 0), 0.4, 0.8) == pytest.approx((0.4, 0.6, 0.8))
    assert scores(tiers(0), 0.4, 0.8) == (0.4,)


@pytest.mark.parametrize("home", [0, 1, 2])
def test_at_one_half_the_tier_that_claims_the_task_serves(home: int) -> None:
    assert temper(tiers(0, 0, 0), home, (0.1, 0.5, 0.99), 0.5) == home


@pytest.mark.parametrize("home", [0, 1, 2])
def test_the_ends_of_the_scale_are_the_ends_of_the_house(home: int) -> None:
    assert temper(tiers(0, 0, 0), home, (1.0, 1.0, 1.0), 1.0) == 2
    assert temper(tiers(0, 0, 0), home, (0.01, 0.5, 0.9), 0.0) == 0


def test_a_cheaper_tier_serves_where_it_is_good_enough_and_the_claiming_one_elsewhere() -> None:
    assert temper(tiers(0, 0, 0), 2, (0.5, 0.7, 0.9), 0.3) == 1
    assert temper(tiers(0, 0, 0), 2, (0.5, 0.55, 0.9), 0.3) == 2


def test_a_tier_never_serves_below_its_own_floor_unless_it_is_the_dearest() -> None:
    assert temper(tiers(0.6, 0, 0), 0, (0.5, 0.7, 0.9), 0.5) == 1
    assert temper(tiers(0.6, 0.8, 0.95), 0, (0.5, 0.7, 0.9), 0.0) == 2


@given(share, share, share, share, st.integers(0, 2), st.tuples(share, share, share))
def test_more_quality_never_gives_a_cheaper_tier(
    low: float, high: float, weak: float, strong: float, home: int, floors: tuple[float, float, float]
) -> None:
    low, high = sorted((low, high))
    weak, strong = sorted((weak, strong))
    ladder = tiers(*floors)
    scored = scores(ladder, weak, strong)
    assert temper(ladder, home, scored, low) <= temper(ladder, home, scored, high)
