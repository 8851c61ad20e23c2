"""One request and its answer, between the connection that reads the socket and whoever reads the answer."""

import math
from collections.abc import Mapping
from typing import Protocol

import httpx

from gateway.upstream.waiting import Waiting


class Carrier(Protocol):
    """What an exchange asks of its connection."""

    def abort(self) -> None: ...

    def resume(self) -> None: ...

    def linger(self) -> None: ...


class UnansweredError(httpx.ReadError):
    """The connection had served before, and died without a byte of an answer: it may have been dead already."""


class Exchange(Waiting):
    """The connection feeds it; `more` and `read` wait for what comes. A wait raises TimeoutError at its end."""

    status = 0
    headers: Mapping[bytes, bytes] | None = None  # names in lower case; None until the head is here
    complete = False  # all of the answer has come
    error: httpx.TransportError | None = None

    def __init__(self, connection: Carrier, pieces: list[bytes]) -> None:
        """`pieces` of the body are put there by the connection's parser, until it has all of them."""
        self._connection: Carrier | None = connection
        self.pieces = pieces  # that are here and not taken

    def take(self) -> bytes:
        """All body bytes that are here, without waiting."""
        pieces = self.pieces
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._connection is not None:
            self._connection.resume()
        return piece

    async def more(self, until: float = math.inf) -> None:
        """Returns once something has come: the head, a piece of the body, its end."""
        if self.error is not None:
            raise self.error
        await self.wait(until)

    async def read(self) -> bytes:
        """All body bytes that are here, at least one; b"" at the end of the body."""
        while not self.pieces and not self.complete:
            await self.more()
        return self.take()

    def abort(self) -> None:
        """Drops the answer, and the connection with it unless the answer is complete."""
        if self._connection is not None:
            self._connection.abort()

    async def aclose(self) -> None:
        self.abort()

    def linger(self) -> None:
        """The reader has all it wants: a short rest is read and dropped, so that the connection can be used again."""
        connection, self._connection = self._connection, None
        self.end()
        if connection is not None:
            connection.linger()

    # What the connection calls.

    def finish(self) -> None:
        self.complete = True
        self._connection = None
        self.end()

    def fail(self, error: httpx.TransportError) -> None:
        self.error = error
        self._connection = None
        self.pieces = self.pieces.copy()
        self.end()
