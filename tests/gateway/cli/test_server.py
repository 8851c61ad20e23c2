"""Serving over real connections: ports, a client that leaves, and a shutdown that lets running answers finish."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from litestar import Litestar, Request, get
from litestar.response import Stream

from gateway.cli.server import bound_port, serve


class Watched:
    """An application that tells what happened to it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.release = asyncio.Event()
        self.app = Litestar(
            [self._slow(), self._held(), self._silent()], lifespan=[self._lifespan], openapi_config=None
        )

    @asynccontextmanager
    async def _lifespan(self, app: Litestar) -> AsyncIterator[None]:
        self.events.append("opened")
        yield
        self.events.append("closed")

    def _slow(self) -> Any:
        @get("/slow")
        async def slow(request: Request[Any, Any, Any]) -> Stream:
            chunks = int(request.query_params["chunks"])

            async def body() -> AsyncIterator[bytes]:
                for number in range(chunks):
                    yield b"%d\n" % number
                    await asyncio.sleep(0.05)
                self.events.append("finished")

            return Stream(body())

        return slow

    def _held(self) -> Any:
        @get("/held")
        async def held() -> Stream:
            async def body() -> AsyncIterator[bytes]:
                yield b"first"
                await self.release.wait()
                yield b"last"

            return Stream(body())

        return held

    def _silent(self) -> Any:
        @get("/silent")
        async def silent(request: Request[Any, Any, Any]) -> str:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            self.events.append("left")
            return ""

        return silent


async def until(happened: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not happened():
            await asyncio.sleep(0.01)


async def ask(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


@asynccontextmanager
async def serving(watched: Watched, grace_s: float = 10.0) -> AsyncIterator[tuple[int, "asyncio.Task[None]"]]:
    ready = asyncio.Event()
    port = bound_port("127.0.0.1", 0)
    task = asyncio.create_task(serve(watched.app, "127.0.0.1", port, grace_s, ready.set))
    await ready.wait()
    yield port, task
    if not task.done():
        os.kill(os.getpid(), signal.SIGTERM)
    await task


@pytest.mark.anyio
async def test_a_client_that_leaves_before_the_first_byte_is_noticed_at_once() -> None:
    watched = Watched()
    async with serving(watched) as (port, _):
        _, writer = await ask(port, "/silent")
        await asyncio.sleep(0.1)
        assert "left" not in watched.events
        writer.close()
        await until(lambda: "left" in watched.events, 1.0)


@pytest.mark.anyio
async def test_a_running_answer_finishes_while_new_connections_are_refused() -> None:
    watched = Watched()
    async with serving(watched) as (port, task):
        reader, writer = await ask(port, "/slow?chunks=20")
        await reader.readuntil(b"0\n")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.3)
        with pytest.raises(ConnectionRefusedError):
            await ask(port, "/slow?chunks=1")
        rest = await reader.readuntil(b"0\r\n\r\n")
        assert b"19\n" in rest
        writer.close()
        await task
    assert watched.events == ["opened", "finished", "closed"]


@pytest.mark.anyio
async def test_an_answer_that_takes_longer_than_the_grace_is_cut_off() -> None:
    watched = Watched()
    async with serving(watched, grace_s=0.2) as (port, task):
        reader, writer = await ask(port, "/slow?chunks=1000")
        await reader.readuntil(b"0\n")
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(5):
            await task
        writer.close()
    assert watched.events == ["opened", "closed"]


@pytest.mark.anyio
async def test_a_failed_start_reaches_the_caller() -> None:
    @asynccontextmanager
    async def broken(app: Litestar) -> AsyncIterator[None]:
        raise ValueError("the database is away")
        yield

    app = Litestar([], lifespan=[broken], openapi_config=None)
    with pytest.raises(ValueError, match="the database is away"):
        await serve(app, "127.0.0.1", bound_port("127.0.0.1", 0), 1.0, lambda: None)


@pytest.mark.anyio
async def test_hundreds_of_streams_run_at_once() -> None:
    watched = Watched()
    async with serving(watched) as (port, _):
        connections = [await ask(port, "/held") for _ in range(300)]
        async with asyncio.timeout(20):
            await asyncio.gather(*(reader.readuntil(b"first") for reader, _ in connections))
            watched.release.set()
            await asyncio.gather(*(reader.readuntil(b"last") for reader, _ in connections))
        for _, writer in connections:
            writer.close()


def test_a_port_in_use_is_refused_and_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1 port {port}: Address already in use"):
            bound_port("127.0.0.1", port)


def test_port_zero_is_a_free_one() -> None:
    assert bound_port("127.0.0.1", 0) > 0
