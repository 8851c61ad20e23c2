"""What is read off the candidates, and that nothing odd among them is an error."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from semcache.bound.neighbourhood import (
    FEATURES,
    MAX_CANDIDATES,
    Candidate,
    Comparison,
    Neighbourhood,
    compare_texts,
    read,
)
from semcache.text import Text

similarities = st.floats(-1, 1) | st.sampled_from([-1.0, 0.0, 1.0])
some_candidates = st.lists(st.tuples(st.sampled_from("abc"), similarities), min_size=1, max_size=MAX_CANDIDATES + 8)


def look(*candidates: tuple[str, float], overlap: float = 0.5, vetoed: bool = False) -> Neighbourhood:
    return read([Candidate(*candidate) for candidate in candidates], lambda _: Comparison(overlap, vetoed))


def feature(seen: Neighbourhood, name: str) -> float:
    return float(seen.features[FEATURES.index(name)])


@given(some_candidates)
def test_any_candidates_give_finite_features(candidates: list[tuple[str, float]]) -> None:
    seen = look(*sorted(candidates, key=lambda candidate: -candidate[1]))
    assert seen.features.shape == (len(FEATURES),)
    assert np.isfinite(seen.features).all()


def test_the_nearest_answer_is_outvoted_by_several_that_are_nearly_as_near() -> None:
    seen = look(("a", 0.80), ("b", 0.79), ("b", 0.79), ("b", 0.78))
    assert (seen.answer, seen.nearest) == ("b", 1)
    assert feature(seen, "margin") < 0 < feature(seen, "soft vote")


def test_a_far_majority_does_not_outvote_the_nearest() -> None:
    assert look(("a", 0.95), ("b", 0.5), ("b", 0.5), ("b", 0.5)).answer == "a"


def test_the_margin_is_to_the_best_question_with_another_answer() -> None:
    assert np.isclose(feature(look(("a", 0.9), ("a", 0.8), ("b", 0.7)), "margin"), 0.2)


def test_candidates_beyond_the_last_that_counts_change_nothing() -> None:
    many = [("a", 0.9)] * MAX_CANDIDATES
    assert np.array_equal(look(*many).features, look(*many, ("b", 0.9)).features)


def test_the_guards_are_asked_of_few_pairs() -> None:
    asked: list[int] = []

    def compare(at: int) -> Comparison:
        asked.append(at)
        return Comparison(0.0, False)

    read([Candidate("a", 0.9)] * MAX_CANDIDATES, compare)
    assert asked == [0, 1, 2]


def test_texts_are_compared_by_their_content_words_and_by_the_guards() -> None:
    card, cards = Text("Where is my new card?"), Text("where are my new cards")
    assert compare_texts(card, cards) == Comparison(1.0, False)
    assert compare_texts(Text("pay 12 dollars"), Text("pay 13 dollars")).vetoed
    assert compare_texts(Text(""), Text("🙂")).overlap == 0.0
