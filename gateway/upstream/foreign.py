"""An answer through a transport that is not ours, read as an `Exchange` is: behind a proxy httpx's own takes over."""

import asyncio
from collections.abc import Mapping

import httpx


class ForeignExchange:
    def __init__(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self.status = response.status_code
        self.headers: Mapping[bytes, bytes] = {name.lower(): value for name, value in reversed(response.headers.raw)}
        self.pieces: list[bytes] = []
        self.complete = False
        self._stream = response.stream
        self._coming = aiter(response.stream)

    async def more(self, until: float) -> None:
        """Raises TimeoutError `until` then, and httpx's errors."""
        async with asyncio.timeout_at(until):
            piece = await anext(self._coming, None)
        if piece is None:
            self.complete = True
            await self.aclose()
        elif piece:
            self.pieces.append(piece)

    def take(self) -> bytes:
        taken = b"".join(self.pieces)
        self.pieces.clear()
        return taken

    def linger(self) -> None:
        """The rest is the transport's to read or to drop."""

    async def aclose(self) -> None:
        await self._stream.aclose()


async def exchange_through(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, until: float
) -> ForeignExchange:
    """Returns at the answer's headers. Raises as `ForeignExchange.more`."""
    async with asyncio.timeout_at(until):
        return ForeignExchange(await transport.handle_async_request(request))
