"""What came in, read straight from ASGI's messages: headers by name, and a body of bounded size in bounded time."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from gateway.errors import (
    ClientClosedRequest,
    InvalidRequestError,
    MethodNotAllowedError,
    PayloadTooLarge,
    RequestTimeout,
    UnsupportedEncoding,
)
from gateway.tenants.types import Principal
from gateway.time_limit import TimeLimit

# A client that sends a byte and falls silent, or one byte at a time, would hold its connection for ever: so a body has
# a while to begin in, and what has come buys more (as in Apache's mod_reqtimeout: body=20,MinRate=...).
PATIENCE_S = 20.0
MIN_BYTES_PER_S = 1_000


class Headers:
    """Looks one up at a call: `headers("authorization")`. The first of several of a name counts."""

    __slots__ = ("_pairs", "_scope")

    def __init__(self, scope: Any) -> None:
        self._scope = scope
        self._pairs: dict[bytes, bytes] = dict(reversed(scope["headers"]))

    def __call__(self, name: str) -> str | None:
        value = self._pairs.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def any_of(self, names: frozenset[bytes]) -> bool:
        """Whether one of these came."""
        return not names.isdisjoint(self._pairs)

    @property
    def path(self) -> str:
        return str(self._scope["path"])

    @property
    def peer(self) -> str | None:
        """The address at the other end of the connection."""
        client = self._scope.get("client")
        return client[0] if client else None

    def lines(self, name: str) -> list[str]:
        """All values of a header, in the order in which they came."""
        return [value.decode("latin-1") for known, value in self._scope["headers"] if known == name.encode("ascii")]


def check_method(scope: Any) -> None:
    """Raises MethodNotAllowedError for whatever is no POST."""
    if scope["method"] != "POST":
        raise MethodNotAllowedError(f"Not allowed: {scope['method']} {scope['path']}", headers={"allow": "POST"})


async def read_body(scope: Any, receive: Any, limit: int) -> bytes:
    """Raises PayloadTooLarge, at the announcement already if there is one, RequestTimeout, UnsupportedEncoding (a
    compressed body may unfold to anything), and InvalidRequestError for a body that breaks off, be it that its client
    left or that its chunks make no sense: the server tells both alike.
    """
    headers = dict(reversed(scope["headers"]))
    if b"content-encoding" in headers:
        _check_encoding(headers[b"content-encoding"])
    announced = headers.get(b"content-length", b"")
    length = int(announced) if announced.isdigit() else -1
    if length > limit:
        raise _too_large(limit)
    try:
        with TimeLimit(PATIENCE_S) as patience:
            message = await receive()
            body: bytes = message.get("body", b"")
            if len(body) == length:
                return body  # the usual case: all in one piece; that nothing follows need not be waited for
            return await _read_pieces(message, receive, limit, patience)
    except TimeoutError as error:
        raise RequestTimeout("The request's body came too slowly.") from error


def _check_encoding(encoding: bytes) -> None:
    if encoding.strip().lower() not in (b"", b"identity"):
        message = "The body of your request is compressed; send it as it is, without a content-encoding."
        raise UnsupportedEncoding(message, param="content-encoding", headers={"accept-encoding": "identity"})


async def _read_pieces(message: Any, receive: Any, limit: int, patience: TimeLimit) -> bytes:
    pieces = bytearray()
    latest_begin = patience.when
    while True:
        if message["type"] == "http.disconnect":
            raise InvalidRequestError("The body of your request broke off.", code="incomplete_body")
        pieces += message.get("body", b"")
        if len(pieces) > limit:
            raise _too_large(limit)
        if not message.get("more_body"):
            return bytes(pieces)
        patience.move_to(latest_begin + len(pieces) / MIN_BYTES_PER_S)
        message = await receive()


async def body_pieces(receive: Any) -> AsyncIterator[bytes]:
    """A body as it comes, for whoever bounds its size; only the time that its client takes is counted.

    Raises RequestTimeout and ClientClosedRequest.
    """
    waited_s, num_bytes, more = 0.0, 0, True
    while more:
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S + num_bytes / MIN_BYTES_PER_S - waited_s):
                message = await receive()
        except TimeoutError as error:
            raise RequestTimeout("The request's body came too slowly.") from error
        waited_s += time.monotonic() - began
        if message["type"] == "http.disconnect":
            raise ClientClosedRequest("the client closed the connection")
        piece: bytes = message.get("body", b"")
        num_bytes += len(piece)
        more = message.get("more_body", False)
        yield piece


async def caller(request: Any) -> Principal:
    """Whose request it is. Raises AuthenticationError and PermissionDeniedError."""
    header = Headers(request.scope)
    principal: Principal = await request.app.state.house.authenticator.identify(header("authorization"), header)
    return principal


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request's body is larger than the {limit} bytes that this gateway takes.")
