"""Stop strings end the text just before them, wherever the pieces are cut, and nothing of them is ever shown."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.stop import StopChecker


def stream(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    checker = StopChecker(stops)
    shown = []
    for piece in pieces:
        shown.append(checker.push(piece))
        if checker.stopped:
            break
    return [*shown, checker.flush()], checker.stopped


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    """The definition, written plainly: the shortest prefix of the text that ends with a stop, less the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def test_a_stop_string_over_four_pieces_is_never_shown() -> None:
    assert stream(["DEFGHIJ"], ["abc", "DEF", "G", "HI", "J", "never"]) == (["abc", "", "", "", "", ""], True)


def test_held_text_comes_when_it_turns_out_not_to_be_the_stop() -> None:
    assert stream(["DEFGHIJ"], ["abcDEF", "X"]) == (["abc", "DEFX", ""], False)


def test_only_what_may_still_become_a_stop_is_held_back() -> None:
    checker = StopChecker(["\n\nHuman:"])
    assert checker.push("a long line of text\n") == "a long line of text"
    assert checker.push("and one more") == "\nand one more"


def test_held_text_comes_at_the_end() -> None:
    assert stream(["END"], ["the E", "N"]) == (["the ", "", "EN"], False)


def test_a_stop_that_overlaps_itself_is_found() -> None:
    assert stream(["aab"], ["aa", "ab", "c"]) == (["", "a", ""], True)


@pytest.mark.parametrize("stops", [["bc", "abcd"], ["abcd", "bc"]])
def test_the_stop_that_is_complete_first_counts(stops: list[str]) -> None:
    assert stream(stops, ["abcd"]) == (["a", ""], True)


def test_of_two_complete_at_once_the_longer_counts() -> None:
    assert stream(["c", "abc"], ["xabc"]) == (["x", ""], True)


def test_without_stops_text_passes_at_once() -> None:
    assert stream([], ["a", "b"]) == (["a", "b", ""], False)


@given(
    text=st.text("ab\n", max_size=40),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=3),
    cuts=st.lists(st.integers(0, 40), max_size=8),
)
def test_the_cuts_make_no_difference(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    shown, stopped = stream(stops, pieces)
    assert ("".join(shown), stopped) == expected(stops, text)


@given(text=st.text("ab", max_size=30), stops=st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=3))
def test_what_is_held_is_the_start_of_a_stop_and_no_more(text: str, stops: list[str]) -> None:
    checker = StopChecker(stops)
    shown = ""
    for i, character in enumerate(text):
        shown += checker.push(character)
        if checker.stopped:
            return
        held = text[len(shown) : i + 1]
        longest = max(k for stop in stops for k in range(len(stop)) if text[: i + 1].endswith(stop[:k]))
        assert held == text[i + 1 - longest : i + 1]
