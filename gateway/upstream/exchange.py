"""One request and its answer, between the connection that reads the socket and whoever reads the answer."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import httpx


class Carrier(Protocol):
    """What an exchange asks of its connection."""

    def abort(self) -> None: ...

    def resume(self) -> None: ...

    def linger(self) -> None: ...


class Exchange:
    """The connection feeds it; `head` and `read` wait for what has come."""

    __slots__ = (
        "_chunks",
        "_connection",
        "_waiter",
        "buffered",
        "complete",
        "error",
        "head_done",
        "headers",
        "reused",
        "started",
        "status",
    )

    def __init__(self, connection: Carrier, reused: bool) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []  # names in lower case
        self.head_done = False
        self.complete = False
        self.error: httpx.TransportError | None = None
        self.started = False  # a byte of the answer has come
        self.reused = reused  # the connection had served before: it may have been dead already
        self._connection: Carrier | None = connection
        self._chunks: list[bytes] = []
        self.buffered = 0  # bytes that wait for the reader, or more: as they came over the wire
        self._waiter: asyncio.Future[None] | None = None

    async def head(self) -> None:
        """Returns once status and headers are here."""
        while not self.head_done:
            if self.error is not None:
                raise self.error
            await self._wait()

    @property
    def ready(self) -> bool:
        """`take` has something to say: bytes, or that there are no more."""
        return bool(self._chunks) or self.complete

    def take(self) -> bytes:
        """All body bytes that are here, without waiting."""
        chunks = self._chunks
        piece = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self.buffered = 0
        if self._connection is not None:
            self._connection.resume()
        return piece

    async def read(self) -> bytes:
        """All body bytes that are here, at least one; b"" at the end of the body."""
        while not self.ready:
            if self.error is not None:
                raise self.error
            await self._wait()
        return self.take()

    def abort(self) -> None:
        """Drops the answer, and the connection with it unless the answer is complete."""
        if self._connection is not None:
            self._connection.abort()

    def linger(self) -> None:
        """The reader has all it wants: a short rest is read and dropped, so that the connection can be used again."""
        connection, self._connection = self._connection, None
        self.buffered = 0
        if connection is not None:
            connection.linger()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the connection calls.

    @property
    def take_in(self) -> Callable[[bytes], None]:
        """To be called with each piece of the body; `wake` follows, once for many pieces."""
        return self._chunks.append

    def head_arrived(self) -> None:
        self.head_done = True

    def finish(self) -> None:
        self.complete = True
        self._connection = None
        self.wake()

    def fail(self, error: httpx.TransportError) -> None:
        self.error = error
        self._connection = None
        self.wake()
