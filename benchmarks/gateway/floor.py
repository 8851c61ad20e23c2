"""The least a Litestar gateway does: parse the body, forward it, relay the answer. No keys, no cache, no accounting.

It shows how much of the time web framework, server and HTTP client take before any feature of a gateway exists.
UPSTREAM_CLIENT is aiohttp, httpx or transport (Tollhouse's own); UPSTREAM is the provider's base URL.
"""

import os
from collections.abc import AsyncIterator
from typing import Any, Protocol

import httpx
import msgspec
from litestar import Litestar, Request, Response, get, post
from litestar.response import Stream

UPSTREAM = os.environ.get("UPSTREAM", "http://127.0.0.1:9900/v1")
URL = f"{UPSTREAM}/chat/completions"
HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-mock"}
NUM_CONNECTIONS = 1000

decode = msgspec.json.Decoder(dict[str, Any]).decode


class Upstream(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def whole(self, body: bytes) -> tuple[int, bytes]: ...

    def stream(self, body: bytes) -> AsyncIterator[bytes]: ...


class HttpxUpstream:
    async def start(self) -> None:
        limits = httpx.Limits(max_connections=NUM_CONNECTIONS, max_keepalive_connections=NUM_CONNECTIONS)
        self.http = httpx.AsyncClient(timeout=60, limits=limits)

    async def stop(self) -> None:
        await self.http.aclose()

    async def whole(self, body: bytes) -> tuple[int, bytes]:
        response = await self.http.post(URL, content=body, headers=HEADERS)
        return response.status_code, response.content

    async def stream(self, body: bytes) -> AsyncIterator[bytes]:
        async with self.http.stream("POST", URL, content=body, headers=HEADERS) as response:
            async for piece in response.aiter_raw():
                yield piece


class AiohttpUpstream:
    async def start(self) -> None:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=NUM_CONNECTIONS)
        self.http = aiohttp.ClientSession(connector=connector, auto_decompress=False)

    async def stop(self) -> None:
        await self.http.close()

    async def whole(self, body: bytes) -> tuple[int, bytes]:
        async with self.http.post(URL, data=body, headers=HEADERS) as response:
            return response.status, await response.read()

    async def stream(self, body: bytes) -> AsyncIterator[bytes]:
        async with self.http.post(URL, data=body, headers=HEADERS) as response:
            async for piece in response.content.iter_any():
                yield piece


class TransportUpstream:
    """Tollhouse's transport, called as its backend calls it."""

    async def start(self) -> None:
        from gateway.upstream.transport import Transport

        self.transport = Transport(max_connections=NUM_CONNECTIONS)
        self.url = httpx.URL(URL)
        self.headers = httpx.Headers(HEADERS | {"host": self.url.netloc.decode()})

    async def stop(self) -> None:
        await self.transport.aclose()

    async def send(self, body: bytes) -> httpx.Response:
        extensions = {"timeout": {"connect": 5.0, "pool": 5.0}}
        stream = httpx.ByteStream(body)
        request = httpx.Request("POST", self.url, headers=self.headers, stream=stream, extensions=extensions)
        return await self.transport.handle_async_request(request)

    async def whole(self, body: bytes) -> tuple[int, bytes]:
        response = await self.send(body)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        return response.status_code, b"".join([piece async for piece in response.stream])

    async def stream(self, body: bytes) -> AsyncIterator[bytes]:
        response = await self.send(body)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for piece in response.stream:
            yield piece


CLIENTS: dict[str, type[Upstream]] = {
    "aiohttp": AiohttpUpstream,
    "httpx": HttpxUpstream,
    "transport": TransportUpstream,
}
upstream = CLIENTS[os.environ.get("UPSTREAM_CLIENT", "aiohttp")]()


@get("/health/ready")
async def ready() -> dict[str, str]:
    return {"status": "ok"}


@post("/v1/chat/completions", status_code=200)
async def chat(request: Request[Any, Any, Any]) -> Response[bytes] | Stream:
    body = await request.body()
    if decode(body).get("stream"):
        return Stream(upstream.stream(body), media_type="text/event-stream")
    status, answer = await upstream.whole(body)
    return Response(answer, status_code=status, media_type="application/json")


app = Litestar([ready, chat], on_startup=[upstream.start], on_shutdown=[upstream.stop], openapi_config=None)
