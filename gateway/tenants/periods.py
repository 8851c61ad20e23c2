"""UTC's days and months, as budgets count them. A request belongs to the period in which it began."""

from calendar import monthrange
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal

import msgspec

PeriodKind = Literal["day", "month"]
PERIODS: tuple[PeriodKind, ...] = ("day", "month")
_DAY_S = 86_400


class Period(msgspec.Struct, frozen=True, gc=False):
    """From `start` to before `end`, in seconds since the epoch."""

    kind: PeriodKind
    label: str  # "2026-11-30", "2026-11"
    start: float
    end: float


def period_at(kind: PeriodKind, at: float) -> Period:
    """The day or the month that holds a time, in seconds since the epoch."""
    return _of_day(kind, int(at // _DAY_S))


@lru_cache(maxsize=64)
def _of_day(kind: PeriodKind, day: int) -> Period:
    first = datetime.fromtimestamp(day * _DAY_S, UTC)
    if kind == "day":
        return Period(kind, f"{first:%Y-%m-%d}", first.timestamp(), (first + timedelta(days=1)).timestamp())
    first = first.replace(day=1)
    days = monthrange(first.year, first.month)[1]
    return Period(kind, f"{first:%Y-%m}", first.timestamp(), (first + timedelta(days=days)).timestamp())
