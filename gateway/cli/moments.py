"""Times and durations as people write them: 2026-12-01, 2026-12-01T08:00+01:00, 30d, 12h, 15m, 90s."""

import re
from datetime import UTC, datetime, timedelta

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9})([smhd])")


class Moment(click.ParamType[datetime]):
    """A point in time, UTC unless it names a zone."""

    name = "ISO"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time such as 2026-12-01 or 2026-12-01T08:00+01:00", param, ctx)


class Duration(click.ParamType[float]):
    """In seconds."""

    name = "DURATION"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return value
        seconds = _seconds(value)
        if seconds is None:
            self.fail(f"{value!r} is not a duration such as 30d, 12h, 15m or 90s", param, ctx)
        return float(seconds)


class Expiry(click.ParamType[datetime | str]):
    """A point in time, or how long from now; "none" where it may be taken away again."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.name = "|".join(["ISO", "30d", *words])

    def convert(
        self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | str:
        if isinstance(value, datetime) or value in self.words:
            return value
        seconds = _seconds(value)
        if seconds is None:
            return Moment().convert(value, param, ctx)
        try:
            return datetime.now(UTC) + timedelta(seconds=seconds)
        except OverflowError:
            self.fail(f"{value} from now is after the last day that there is", param, ctx)


def _seconds(text: str) -> int | None:
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _UNITS[found[2]] if found else None
