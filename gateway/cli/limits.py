"""Limits as the command line writes them: a number, `unlimited`, or `none` for none of its own."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from gateway.tenants.types import Limits

LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
UNLIMITED, NONE = "unlimited", "none"
NAMES = ("name",)  # fields that have a value always: there, "none" is a name
Command = TypeVar("Command", bound=Callable[..., Any])


class Setting(click.ParamType[int | str]):
    """A number from 1 on, or one of the words; `unlimited` is 0."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.name = "|".join(["N", *words])

    def convert(self, value: int | str, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value in self.words:
            return 0 if value == UNLIMITED else value
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r} is neither a number from 1 on nor {' nor '.join(self.words)}", param, ctx)
        return number


LIMIT = Setting(UNLIMITED, NONE)


def limit_options(help: str) -> Callable[[Command], Command]:
    """The three options; what they are given is for `meant`."""

    def add(command: Command) -> Command:
        for name in reversed(LIMITS):
            command = click.option(f"--{name.replace('_', '-')}", type=LIMIT, metavar=LIMIT.name, help=help)(command)
        return command

    return add


def meant(given: dict[str, Any]) -> dict[str, Any]:
    """The fields to change: those that were named. `none` is None."""
    return {
        name: None if value == NONE and name not in NAMES else value
        for name, value in given.items()
        if value is not None
    }


def limits_of(given: dict[str, Any]) -> "Limits":
    """Of a new tenant, team or key; takes them out of what was given."""
    from gateway.tenants.types import Limits

    return Limits(**meant({name: given.pop(name) for name in LIMITS}))


def cells(limits: "Limits") -> list[str]:
    """For a table: blank where there is none of its own."""
    numbers = (getattr(limits, name) for name in LIMITS)
    return ["" if number is None else f"{number:,}" if number else "unlimited" for number in numbers]
