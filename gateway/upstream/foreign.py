"""An answer through a transport that is not ours, read as an `Exchange` is: behind a proxy httpx's own takes over."""

import asyncio
from collections.abc import Mapping

import httpx


class ForeignExchange:
    def __init__(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self.status = response.status_code
        self.headers: Mapping[bytes, bytes] = {name.lower(): value for name, value in reversed(response.headers.raw)}
        self.pieces: list[bytes] = []  # nobody knows what is here before it is read,
        self.complete = False  # and whether there will be more
        self._stream = response.stream
        self._pieces = aiter(response.stream)

    async def read(self, until: float) -> bytes:
        """The next bytes, b"" at the end. Raises TimeoutError `until` then, and httpx's errors."""
        async with asyncio.timeout_at(until):
            piece = await anext(self._pieces, b"")
        if not piece:
            await self.aclose()
        return piece

    def take(self) -> bytes:
        return b""

    def linger(self) -> None:
        """The rest is the transport's to read or to drop."""

    async def aclose(self) -> None:
        await self._stream.aclose()


async def exchange_through(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, until: float
) -> ForeignExchange:
    """Returns at the answer's headers. Raises as `ForeignExchange.read`."""
    async with asyncio.timeout_at(until):
        return ForeignExchange(await transport.handle_async_request(request))
