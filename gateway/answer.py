"""Answers as ASGI applications: the handler returns one, Litestar calls it. Knows headers and bytes, not what they say.

Litestar's own Response and Stream cost more than the rest of the framework together; these send the two or three
messages that an answer needs, and keep the connection's end in our hands.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Protocol

import msgspec

from gateway.departure import Departure, Register
from gateway.errors import ApiError, ClientClosedRequest
from gateway.heartbeat import Heartbeat

Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
EVENT_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")


def encode_headers(pairs: Iterable[tuple[str, str]]) -> Headers:
    """Header values as latin-1; what HTTP can't carry (line breaks, other scripts) becomes a question mark."""
    return [
        (name.encode(), value.encode() if value.isascii() and value.isprintable() else _clean(value))
        for name, value in pairs
    ]


def clean_headers(headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Somebody else's, as HTTP can carry them; nearly always they are so already."""
    values = b"".join(headers.values())
    if values.isascii() and values.decode().isprintable():
        return headers
    return dict(encode_headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.items()))


def _clean(value: str) -> bytes:
    return "".join(c if c.isprintable() else "?" for c in value).encode("ascii", "replace")


class Answer(msgspec.Struct, eq=False):
    """A whole answer."""

    body: bytes
    status: int = 200
    headers: Headers = []  # each answer's own
    content_type: tuple[bytes, bytes] = JSON

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        length = (b"content-length", b"%d" % len(self.body))
        headers = [self.content_type, length, *self.headers]
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": False})
        except ClientClosedRequest:
            pass  # it did not read its answer, and nobody is there to be told


def error_answer(
    error: ApiError, headers: Headers | None = None, encode: Callable[[ApiError], bytes] = ApiError.encode
) -> Answer:
    """Each header once: the error's own word counts. `encode`: the body, where it is not OpenAI's."""
    own = encode_headers(error.headers.items())
    names = {name.lower() for name, _ in own}
    others = [pair for pair in headers or () if pair[0] not in names]
    return Answer(encode(error), status=error.status, headers=[*others, *own])


class Last(bytes):
    """A stream's piece that is its last: with it the answer ends, and not with an empty one behind it."""

    __slots__ = ()


class Source(Protocol):
    """A stream of bytes. `close` follows in any case, also where `events` was never begun."""

    def events(self) -> AsyncGenerator[bytes, None]: ...

    def broken(self, error: ApiError) -> bytes:
        """The last bytes of a stream that we have to end early."""

    async def close(self) -> None: ...


NO_BUFFERING: Headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


class StreamAnswer:
    """Server-sent events from a source, relayed as they come; or bytes of any other `content_type`."""

    __slots__ = ("_register", "content_type", "headers", "source")

    def __init__(
        self,
        source: Source,
        headers: Headers,
        register: Register | None = None,
        *,
        content_type: tuple[bytes, bytes] = EVENT_STREAM,
    ) -> None:
        self.source = source
        self.headers = headers
        self.content_type = content_type
        self._register = register

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        events, ended = self.source.events(), False
        try:
            await self._relay(events, receive, send)
            ended = True
        except ClientClosedRequest:
            pass  # nobody is there to be told; the source keeps its own books
        except ApiError as error:
            await _say(send, self.source.broken(error), more=False)
        finally:
            if isinstance(send, Heartbeat):
                send.close()
            closing = self._close(events)
            await (closing if ended else asyncio.shield(closing))  # after its end, a stream holds nothing to be let go

    async def _relay(self, events: AsyncGenerator[bytes, None], receive: Any, send: Any) -> None:
        with Departure(receive, self._register) as departure:
            if isinstance(send, Heartbeat):
                send.on_stuck = departure.stop
                if self.content_type is not EVENT_STREAM:
                    send.watch()
            head = stream_head(self.headers, self.content_type)
            await send({"type": "http.response.start", "status": 200, "headers": head})
            piece = b""
            async for piece in events:
                await _say(send, piece, more=type(piece) is not Last)
        if type(piece) is not Last:
            await _say(send, b"", more=False)

    async def _close(self, events: AsyncGenerator[bytes, None]) -> None:
        try:
            await events.aclose()
        finally:
            await self.source.close()


def stream_head(headers: Headers, content_type: tuple[bytes, bytes] = EVENT_STREAM) -> Headers:
    return [content_type, *NO_BUFFERING, *headers]


async def _say(send: Any, piece: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": more})
