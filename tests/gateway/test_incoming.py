"""Headers and bodies as ASGI brings them."""

import asyncio
import os
import signal
from typing import Any

import pytest
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send

from gateway.answer import error_answer
from gateway.api import incoming
from gateway.api.incoming import Headers, read_body
from gateway.cli.server import bound_port, serve
from gateway.errors import ApiError, InvalidRequestError, PayloadTooLarge, RequestTimeout, UnsupportedEncoding

pytestmark = pytest.mark.anyio

GONE = {"type": "http.disconnect"}


class Incoming:
    """Brings its messages one by one, and counts how many were asked for."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = list(messages)
        self.num_taken = 0

    async def __call__(self) -> dict[str, Any]:
        self.num_taken += 1
        return self.messages.pop(0)


def scope(**headers: str) -> dict[str, Any]:
    return {"headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]}


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_headers_are_found_by_name() -> None:
    headers = Headers(scope(authorization="Bearer x", x_empty=""))
    assert headers("authorization") == "Bearer x"
    assert headers("x-empty") == ""
    assert headers("cookie") is None


def test_of_several_headers_of_a_name_the_first_counts() -> None:
    pairs = [(b"authorization", b"Bearer first"), (b"authorization", b"Bearer second")]
    assert Headers({"headers": pairs})("authorization") == "Bearer first"


def test_bytes_that_are_no_text_are_read_as_latin_1() -> None:
    assert Headers({"headers": [(b"x-a", b"\xff\xb2")]})("x-a") == "ÿ²"


async def test_a_body_in_one_piece_is_not_waited_for_any_further() -> None:
    incoming = Incoming(part(b"12345"))
    assert await read_body(scope(content_length="5"), incoming, 10) == b"12345"
    assert incoming.num_taken == 1


async def test_a_compressed_body_is_named_as_such_and_not_read() -> None:
    for encoding in ("gzip", "BR", "identity, gzip"):
        incoming = Incoming(part(b"12345"))
        with pytest.raises(UnsupportedEncoding, match="compressed") as refused:
            await read_body(scope(content_length="5", content_encoding=encoding), incoming, 10)
        assert (refused.value.status, incoming.num_taken) == (415, 0)
    for plain in ("identity", "Identity ", ""):
        assert (
            await read_body(scope(content_length="5", content_encoding=plain), Incoming(part(b"12345")), 10) == b"12345"
        )


async def test_a_body_in_pieces_is_joined() -> None:
    incoming = Incoming(part(b"12", more=True), part(b"", more=True), part(b"345"))
    assert await read_body(scope(content_length="5"), incoming, 10) == b"12345"


@pytest.mark.parametrize("announced", ["", "²", "-5", "5, 5", "+5", "0x5"])
async def test_a_length_that_is_no_number_counts_for_nothing(announced: str) -> None:
    headers = {"headers": [(b"content-length", announced.encode("latin-1"))]}
    assert await read_body(headers, Incoming(part(b"12", more=True), part(b"345")), 10) == b"12345"


async def test_no_body_is_an_empty_one() -> None:
    assert await read_body(scope(), Incoming({"type": "http.request"}), 10) == b""
    assert await read_body(scope(content_length="0"), Incoming(part(b"")), 10) == b""


async def test_what_is_announced_too_large_is_refused_unread() -> None:
    incoming = Incoming(part(b"1"))
    with pytest.raises(PayloadTooLarge, match="10 bytes"):
        await read_body(scope(content_length="11"), incoming, 10)
    assert incoming.num_taken == 0


async def test_what_turns_out_too_large_is_not_read_to_its_end() -> None:
    incoming = Incoming(*(part(b"1234", more=True) for _ in range(100)))
    with pytest.raises(PayloadTooLarge):
        await read_body(scope(), incoming, 10)
    assert incoming.num_taken == 3


async def test_a_body_just_within_the_limit_is_taken() -> None:
    assert await read_body(scope(content_length="10"), Incoming(part(b"x" * 10)), 10) == b"x" * 10
    with pytest.raises(PayloadTooLarge):
        await read_body(scope(), Incoming(part(b"x" * 11)), 10)


@pytest.mark.parametrize("before", [[], [part(b"12", more=True)]])
async def test_a_client_that_leaves_before_the_end_has_asked_nothing(before: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        await read_body(scope(content_length="5"), Incoming(*before, GONE), 10)
    assert raised.value.code == "incomplete_body"


class Dripping:
    """Brings one byte each `interval_s`, and never an end."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s

    async def __call__(self) -> dict[str, Any]:
        await asyncio.sleep(self.interval_s)
        return part(b"x", more=True)


@pytest.mark.parametrize("interval_s", [60.0, 0.01])
async def test_a_body_that_hardly_comes_is_given_up(monkeypatch: pytest.MonkeyPatch, interval_s: float) -> None:
    monkeypatch.setattr(incoming, "PATIENCE_S", 0.2)
    async with asyncio.timeout(10):
        with pytest.raises(RequestTimeout):
            await read_body(scope(), Dripping(interval_s), 1_000_000)


async def test_a_body_that_keeps_coming_has_the_time_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "PATIENCE_S", 0.2)
    monkeypatch.setattr(incoming, "MIN_BYTES_PER_S", 1)
    pieces = [part(b"x" * 5, more=True) for _ in range(30)]

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return pieces.pop() if pieces else part(b"")

    assert len(await read_body(scope(), receive, 1_000)) == 150


async def test_a_cancellation_from_elsewhere_is_no_timeout() -> None:
    reading = asyncio.create_task(read_body(scope(), Dripping(60.0), 10))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize("sent", [b"", b"1"])
async def test_a_real_client_that_falls_silent_gets_an_answer(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(incoming, "PATIENCE_S", 0.2)

    @asgi("/", copy_scope=False)
    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await read_body(scope, receive, 100)
        except ApiError as error:
            await error_answer(error, [])(scope, receive, send)

    ready, port = asyncio.Event(), bound_port("127.0.0.1", 0)
    app = Litestar([read], openapi_config=None)
    serving = asyncio.create_task(serve(app, "127.0.0.1", port, 1.0, ready.set))
    await ready.wait()
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n" + sent)
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
    writer.close()
    os.kill(os.getpid(), signal.SIGTERM)
    await serving
