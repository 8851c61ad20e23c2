"""Text comes in whole characters, however tokens cut their bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer


def stream(pieces: list[bytes]) -> list[str]:
    detokenizer = Detokenizer(lambda previous, i: pieces[i])
    return [detokenizer.push(i) for i in range(len(pieces))]


@pytest.mark.parametrize("text", ["🙂", "漢字", "né", "👩‍👩‍👧‍👦", "a🇩🇪b", "ẞ\u0301"])
def test_a_character_comes_when_its_last_byte_has_come(text: str) -> None:
    shown = stream([bytes([byte]) for byte in text.encode()])
    assert "".join(shown) == text
    assert "\ufffd" not in "".join(shown)
    assert all(len(piece) <= 1 for piece in shown)


def test_an_emoji_cut_into_two_tokens_waits_for_the_second() -> None:
    assert stream([b"hi \xf0\x9f", b"\x99\x82!"]) == ["hi ", "🙂!"]


def test_tokens_without_text_show_nothing_and_disturb_nothing() -> None:
    assert stream([b"\xe6\xbc", b"", b"\xa2"]) == ["", "", "漢"]


def test_bytes_that_can_never_be_a_character_are_left_out() -> None:
    assert stream([b"a\xff", b"b", b"\xe6\xbc", b"c"]) == ["a", "b", "", "c"]


def test_a_character_that_the_end_cut_off_never_comes() -> None:
    assert stream([b"ok \xf0\x9f", b"\x99"]) == ["ok ", ""]


def test_each_token_is_told_what_came_before_it() -> None:
    seen: list[tuple[int | None, int]] = []
    detokenizer = Detokenizer(lambda previous, i: bytes(seen.append((previous, i)) or b"x"), previous=7)
    assert detokenizer.push(1) + detokenizer.push(2) == "xx"
    assert seen == [(7, 1), (1, 2)]


def test_a_replacement_character_that_the_model_wrote_itself_passes() -> None:
    assert stream(["\ufffd".encode()]) == ["\ufffd"]


@given(st.binary(max_size=30), st.lists(st.integers(0, 30), max_size=8))
def test_the_pieces_joined_are_the_whole_decoded(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges)]
    assert "".join(stream(pieces)) == data.decode("utf-8", errors="ignore")
