"""How the command line shows things: tables that fit, money with as many decimals as it takes. Knows no database."""

import os
import textwrap
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from gateway.money import NANO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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


def print_table(shown: "Table") -> None:
    """As a table where it fits; where that would cut words or digits, a paragraph a row: words, then numbers."""
    screen = console()
    if _least_width(shown) <= screen.width:
        screen.print(shown)
    else:
        screen.print(_as_paragraphs(shown, screen.width))


def _least_width(shown: "Table") -> int:
    """Below it, rich cuts: numbers stay on one line, and words are not broken."""
    width = 3 * (len(shown.columns) - 1)  # what stands between columns
    for column in shown.columns:
        cells = [console().measure(cell) for cell in (column.header, *column.cells)]
        width += max(cell.maximum if column.no_wrap else cell.minimum for cell in cells)
    return width


def _as_paragraphs(shown: "Table", width: int) -> "Text":
    from rich.text import Text

    told = Text()
    for cells in zip(*(column.cells for column in shown.columns), strict=True):
        row = [(column, str(cell)) for column, cell in zip(shown.columns, cells, strict=True) if cell]
        told.append("\n" * bool(told) + "  ".join(cell for column, cell in row if not column.no_wrap), style="bold")
        numbers = [f"{column.header}: {' '.join(cell.split())}" for column, cell in row if column.no_wrap]
        unbroken = "   ".join(number.replace(" ", "\xa0") for number in numbers)
        for line in textwrap.wrap(unbroken, width - 2, break_long_words=False, break_on_hyphens=False):
            told.append("\n  " + line.replace("\xa0", " "))
    return told


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
