"""A key's scope as the command line writes it: lists with commas, one option each."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from gateway.tenants.types import Scope

FIELDS = {  # by option
    "models": "models",
    "tiers": "tiers",
    "endpoints": "endpoints",
    "ip": "ip_ranges",
}
_HELP = {
    "models": "Globs of the models that it may name, and that `auto` chooses from.",
    "tiers": "Tiers whose models it may use.",
    "endpoints": "Such as chat/completions, embeddings or audio.",
    "ip": "Addresses it may be used from: 10.0.0.0/8, 2001:db8::/32.",
}
Command = TypeVar("Command", bound=Callable[..., Any])


def scope_options(command: Command) -> Command:
    for option, field in reversed(FIELDS.items()):
        command = click.option(f"--{option}", field, metavar="A,B,...", help=_HELP[option])(command)
    return command


def listed(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def told(scope: "Scope | None") -> Iterator[tuple[str, str]]:
    """(option, its list as it is written), with "" for what is not narrowed."""
    for option, field in FIELDS.items():
        yield option, ", ".join(getattr(scope, field, None) or ())


def in_short(scope: "Scope | None") -> str:
    if scope is None:
        return "everything"
    return "\n".join(f"{option} {written}" for option, written in told(scope) if written)
