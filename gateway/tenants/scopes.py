"""What an administrator may write into a key's scope: checked and brought into one form before it is stored."""

import difflib
import ipaddress
from collections.abc import Iterable

import msgspec

from gateway.tenants.errors import InvalidValue
from gateway.tenants.types import Scope

ENDPOINTS = (
    # Below /v1; a name stands for everything under it. /v1/models is open to every key: it lists what that may use.
    "chat/completions",
    "completions",
    "embeddings",
    "responses",
    "messages",
    "messages/count_tokens",
    "moderations",
    "audio",
    "audio/speech",
    "audio/transcriptions",
    "audio/translations",
    "images",
    "images/generations",
    "files",
    "batches",
    "tokenize",
    "detokenize",
    "dashboard",  # the tenant's own books, at /dashboard/data
)
MAX_ENTRIES = 200  # in one list
MAX_LENGTH = 200  # of an entry


def checked(scope: Scope) -> Scope | None:
    """In its one form; None where it narrows nothing. Raises InvalidValue."""
    if scope == Scope():
        return None
    for name in Scope.__struct_fields__:
        entries = getattr(scope, name)
        if entries is not None:
            _check_list(name, entries)
    for endpoint in scope.endpoints or ():
        if endpoint not in ENDPOINTS:
            raise InvalidValue(f"endpoints: there is no {endpoint!r}{_suggest(endpoint)}")
    if scope.ip_ranges is None:
        return scope
    return msgspec.structs.replace(scope, ip_ranges=tuple(map(_range, scope.ip_ranges)))


def _check_list(name: str, entries: tuple[str, ...]) -> None:
    if not entries:
        raise InvalidValue(f"{name}: an empty list would allow nothing; leave it out to allow everything")
    if len(entries) > MAX_ENTRIES:
        raise InvalidValue(f"{name}: {len(entries)} entries are more than the {MAX_ENTRIES} that there may be")
    for entry in entries:
        if not entry or len(entry) > MAX_LENGTH or not entry.isprintable() or entry != entry.strip():
            raise InvalidValue(f"{name}: {entry[:MAX_LENGTH]!r} is not 1 to {MAX_LENGTH} printable characters")


def _range(text: str) -> str:
    """Any spelling of a network or address as CIDR: "10.1.2.3" is "10.1.2.3/32"."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise InvalidValue(f"ip_ranges: {text!r} is no range such as 10.0.0.0/8 or 2001:db8::/32 ({error})") from error


def _suggest(endpoint: str) -> str:
    close: Iterable[str] = difflib.get_close_matches(endpoint.replace(".", "/"), ENDPOINTS, n=1, cutoff=0.5)
    return "".join(f"; did you mean {name!r}?" for name in close) or f"; there are: {', '.join(ENDPOINTS)}"
