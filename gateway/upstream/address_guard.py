"""Which addresses we may be sent to by somebody's configuration: a guard against server-side request forgery (SSRF).

A name is resolved once, every address that it stands for is checked, and the connection goes to a checked address: a
name that resolves otherwise a moment later (DNS rebinding) gains nothing. Ways of writing an address (decimal, octal,
IPv4 inside IPv6) are all one to the resolver, and so to the check.

Method: OWASP, Server-Side Request Forgery Prevention Cheat Sheet; address blocks of IANA's special-purpose registries.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from typing import Literal, NoReturn
from urllib.parse import urlsplit

Guard = Literal["public", "not-metadata"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Where clouds answer questions about the machine, its credentials among them, to anyone who can make it ask.
METADATA = tuple(
    map(
        ipaddress.ip_network,
        (
            "169.254.0.0/16",  # AWS, Google, Azure, DigitalOcean, Oracle and whatever else is link-local
            "fe80::/10",
            "fd00:ec2::/32",  # AWS, over IPv6
            "fd20:ce::/32",  # Google, over IPv6
            "fd00:42::42/128",  # Scaleway
            "100.100.100.200/32",  # Alibaba
            "168.63.129.16/32",  # Azure's host
        ),
    )
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SCHEMES = ("http", "https")
_LONGEST_NAME = 253  # characters (RFC 1035)


class ForbiddenAddress(OSError):
    """Nothing was sent. An OSError, since to whoever connects it is one more reason why that is not possible."""


def check_address(address: str, guard: Guard) -> None:
    """Raises ForbiddenAddress. `address`: as the resolver writes it, a zone (`%eth0`) included."""
    for each in _all_meanings(ipaddress.ip_address(address.partition("%")[0])):
        if any(each in network for network in METADATA if network.version == each.version):
            raise ForbiddenAddress(f"{address} belongs to a cloud's metadata or is link-local: not connected")
        if guard == "public" and (not each.is_global or each.is_multicast):
            _refuse_private(address)


def check_url(url: str, guard: Guard) -> None:
    """What can be said without asking a name server. Raises ForbiddenAddress."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ForbiddenAddress(f"not a URL: {error}") from error
    if parts.scheme not in _SCHEMES or not host:
        raise ForbiddenAddress("a URL begins with http:// or https:// and names a host")
    if parts.username is not None or parts.password is not None:
        raise ForbiddenAddress("a URL with a user's name or a password in it is not accepted")
    if (literal := _literal(host)) is not None:
        check_address(literal, guard)
    elif guard == "public" and (host == "localhost" or host.endswith(".localhost")):
        _refuse_private(host)


async def resolve(host: str, port: int, guard: Guard) -> list[str]:
    """The addresses of a name, all of them checked: one forbidden among them forbids all. Raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # an empty label, or one of more than 63 characters
        raise OSError(f"{host[:_LONGEST_NAME]} can't be a host's name") from error
    addresses = [str(info[4][0]) for info in found]
    for address in addresses:
        check_address(address, guard)
    return addresses


def _refuse_private(host: str) -> NoReturn:
    raise ForbiddenAddress(f"{host} is not a public address ([security] allow_private_webhooks): not connected")


def _literal(host: str) -> str | None:
    """The address that a host is, in any of the ways that resolvers read; None for a name."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))  # 2852039166, 0xa9fea9fe, 0251.254.0xa9fe
    except OSError:
        return None


def _all_meanings(address: Address) -> Iterator[Address]:
    """The address, and the IPv4 address that an IPv6 one stands for or leads to."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        for inside in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())):
            if inside is not None:
                yield inside
        if address in _NAT64:
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
