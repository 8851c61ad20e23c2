"""What a request's headers ask for beside what its body says. Most ask for nothing, which is one look."""

import msgspec

from gateway.question import NO_DIRECTIVES, Directives
from gateway.tenants.gatekeeper import Incoming
from gateway.upstream.headers import FORWARDED

YES = ("1", "true", "yes")
_NAMES = frozenset(
    ("x-tollhouse-namespace", "x-tollhouse-tier", "x-tollhouse-timeout-s", "x-tollhouse-dry-run", "cache-control")
)
_ALL = frozenset(name.encode() for name in _NAMES | FORWARDED)


class Wishes(msgspec.Struct, frozen=True, gc=False):
    namespace: str | None = None
    tier: str | None = None
    timeout_s: str | None = None  # as the client wrote it
    directives: Directives = NO_DIRECTIVES
    dry_run: bool = False
    forwarded: tuple[tuple[str, str], ...] = ()  # headers for the upstream

    @classmethod
    def of(cls, header: Incoming) -> "Wishes":
        return _read(header) if header.any_of(_ALL) else NO_WISHES


NO_WISHES = Wishes()


def _read(header: Incoming) -> Wishes:
    return Wishes(
        namespace=header("x-tollhouse-namespace"),
        tier=header("x-tollhouse-tier"),
        timeout_s=header("x-tollhouse-timeout-s"),
        directives=Directives.parse(header("cache-control")),
        dry_run=(header("x-tollhouse-dry-run") or "").lower() in YES,
        forwarded=tuple((name, value) for name in FORWARDED if (value := header(name)) is not None),
    )
