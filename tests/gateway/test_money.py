from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.money import dollars


@pytest.mark.parametrize(
    ("nanousd", "text"),
    [(0, "0.0"), (1, "0.000000001"), (1234, "0.000001234"), (2_000_000_000, "2.0"), (-1_500_000_000, "-1.5")],
)
def test_dollars_are_written_in_full(nanousd: int, text: str) -> None:
    assert dollars(nanousd) == text


@given(st.integers(-(10**24), 10**24))
def test_no_nano_dollar_is_lost(nanousd: int) -> None:
    assert Decimal(dollars(nanousd)).scaleb(9) == nanousd
