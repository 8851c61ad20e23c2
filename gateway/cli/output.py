"""How the command line shows things: tables that fit, money with as many decimals as it takes. Knows no database."""

import os
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from gateway.money import NANO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDE = 200  # for pipes and files, where nothing has to fit


@cache
def console() -> "Console":
    from rich.console import Console

    plain = Console(highlight=False)
    if plain.is_terminal or "COLUMNS" in os.environ:
        return plain
    return Console(highlight=False, width=_WIDE)


def table(*columns: str, right: Iterable[str] = ()) -> "Table":
    """`right`: the columns of numbers."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        is_number = column in set(right)
        made.add_column(column, justify="right" if is_number else "left", no_wrap=is_number)
    return made


def decimals_for(amounts: Iterable[int]) -> int:
    """So many that the smallest amount shows two digits; at least cents, at most nano-dollars."""
    smallest = min((abs(amount) for amount in amounts if amount), default=NANO)
    decimals = 2
    while decimals < 9 and smallest * 10**decimals < 10 * NANO:
        decimals += 1
    return decimals


def money(nanousd: int, decimals: int) -> str:
    """Rounded half up, in dollars: 1_500 with 7 decimals is "$0.0000015"."""
    step = 10 ** (9 - decimals)
    sign = "-" if nanousd < 0 else ""
    whole, fraction = divmod((abs(nanousd) + step // 2) // step, 10**decimals)
    return f"{sign}${whole:,}.{fraction:0{decimals}d}"


def exact_money(nanousd: int) -> str:
    """Not rounded: as many decimals as it has, at least cents."""
    decimals = next((digits for digits in range(2, 9) if nanousd % 10 ** (9 - digits) == 0), 9)
    return money(nanousd, decimals)


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else ""
