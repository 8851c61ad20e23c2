"""May a key be used from here, and for this endpoint? What it may ask for there is judged by `gateway.allowed`."""

import ipaddress
from collections.abc import Iterable
from typing import Protocol

from gateway.errors import PermissionDeniedError
from gateway.tenants.types import Scope

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Incoming(Protocol):
    """A request before it is read: its headers by name, its path, and the other end of its connection."""

    def __call__(self, name: str) -> str | None: ...

    @property
    def path(self) -> str: ...

    @property
    def peer(self) -> str | None: ...

    def any_of(self, names: frozenset[bytes]) -> bool:
        """Whether one of these came."""

    def lines(self, name: str) -> list[str]:
        """Every value of a header that may come several times, in order."""


class Proxies:
    """Reverse proxies whose X-Forwarded-For is believed. Raises ValueError for what is no range."""

    def __init__(self, ranges: Iterable[str] = ()) -> None:
        self._trusted = [ipaddress.ip_network(text) for text in ranges]

    def client(self, incoming: Incoming) -> Address | None:
        """The nearest hop that is no trusted proxy; None where it can't be told.

        Each proxy appends whom it heard from, so the list is read from its end: what stands before the first hop that
        nobody vouches for may be anybody's invention.
        """
        hop = _parse(incoming.peer or "")
        if not self._trusted or not self._trusts(hop):
            return hop
        written = [text for line in incoming.lines("x-forwarded-for") for text in line.split(",")]
        for text in reversed(written):
            hop = _parse(text)
            if not self._trusts(hop):
                return hop
        return hop

    def _trusts(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._trusted)


class Gatekeeper:
    """One scope, made ready to be asked."""

    def __init__(self, scope: Scope, proxies: Proxies) -> None:
        self._endpoints = scope.endpoints
        self._networks = None if scope.ip_ranges is None else [ipaddress.ip_network(text) for text in scope.ip_ranges]
        self._proxies = proxies

    def check(self, incoming: Incoming) -> None:
        """Raises PermissionDeniedError."""
        if self._networks is not None:
            address = self._proxies.client(incoming)
            if address is None or not any(address in network for network in self._networks):
                message = f"This API key may not be used from {address or 'an address that can not be told'}."
                raise PermissionDeniedError(message, code="ip_not_allowed")
        self.check_path(incoming.path)

    def check_path(self, path: str) -> None:
        """Raises PermissionDeniedError."""
        if self._endpoints is not None and not self._has(path.removeprefix("/v1/").strip("/")):
            message = f"This API key may not use {path}, only: {', '.join(self._endpoints)}."
            raise PermissionDeniedError(message, code="endpoint_not_allowed")

    def _has(self, path: str) -> bool:
        assert self._endpoints is not None
        open_to_all = path == "models" or path.startswith("models/")
        return open_to_all or any(path == name or path.startswith(f"{name}/") for name in self._endpoints)


def _parse(text: str) -> Address | None:
    """One hop as peers and proxies write it: "10.0.0.1", "10.0.0.1:443", "[::1]:443", "fe80::1%2"."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
