"""Tensors that live at the same time never share a byte, and the others are let share."""

import hypothesis.strategies as st
from hypothesis import given

from kernels.cpu.arena import Lifetime, place


def lifetime(size: int, first: int, last: int) -> Lifetime:
    made = Lifetime(size)
    made.extend(last)
    made.extend(first)
    return made


lifetimes = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(0, 8)).map(
        lambda drawn: lifetime(drawn[0], drawn[1], drawn[1] + drawn[2])
    ),
    max_size=30,
)


@given(lifetimes, st.sampled_from([1, 64]))
def test_who_lives_together_lies_apart(drawn: list[Lifetime], alignment: int) -> None:
    size, offsets = place(drawn, alignment)
    assert all(offset % alignment == 0 for offset in offsets)
    assert all(offset + each.size <= size for offset, each in zip(offsets, drawn, strict=True))
    for i, one in enumerate(drawn):
        for j, other in enumerate(drawn[:i]):
            if one.first <= other.last and other.first <= one.last:  # type: ignore[operator]
                assert offsets[i] + one.size <= offsets[j] or offsets[j] + other.size <= offsets[i]


def test_a_chain_takes_the_room_of_its_largest_neighbours() -> None:
    chain = [lifetime(100, now, now + 1) for now in range(50)]
    assert place(chain, 1)[0] == 200


def test_what_is_never_used_takes_part_in_no_conflict() -> None:
    assert place([Lifetime(100), lifetime(100, 0, 5)], 1) == (100, [0, 0])
