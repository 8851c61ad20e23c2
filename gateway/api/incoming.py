"""What came in, read straight from ASGI's messages: headers by name, and a body of bounded size."""

from typing import Any

from gateway.errors import ClientClosedRequest, PayloadTooLarge


class Headers:
    """Looks one up at a call: `headers("authorization")`. The first of several of a name counts."""

    __slots__ = ("_pairs",)

    def __init__(self, scope: Any) -> None:
        self._pairs: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            self._pairs.setdefault(name, value)

    def __call__(self, name: str) -> str | None:
        value = self._pairs.get(name.encode("ascii"))
        return None if value is None else value.decode("latin-1")


async def read_body(scope: Any, receive: Any, limit: int) -> bytes:
    """Raises PayloadTooLarge, at the announcement already if there is one, and ClientClosedRequest."""
    announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if not announced.isdigit():
        announced = b""
    elif int(announced) > limit:
        raise _too_large(limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if announced and len(body) == int(announced) <= limit:
        return body  # the usual case: all in one piece; that nothing follows need not be waited for
    return await _read_pieces(message, receive, limit)


async def _read_pieces(message: Any, receive: Any, limit: int) -> bytes:
    pieces = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise ClientClosedRequest("the client closed the connection")
        pieces += message.get("body", b"")
        if len(pieces) > limit:
            raise _too_large(limit)
        if not message.get("more_body"):
            return bytes(pieces)
        message = await receive()


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request's body is larger than the {limit} bytes that this gateway takes.")
