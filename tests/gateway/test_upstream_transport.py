"""The HTTP transport against real sockets, on asyncio's own event loop and on uvloop."""

import asyncio
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream import transport as transport_module
from gateway.upstream.connection import HIGH_WATER, Connection
from gateway.upstream.exchange import Exchange
from gateway.upstream.transport import Transport, proxy_for, transport_for
from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.faults.misbehaviours import SCRIPTS, completion

DATA = Path(__file__).parent / "data"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def transport(anyio_backend: Any) -> AsyncIterator[Transport]:
    made = Transport()
    yield made
    await made.aclose()


@pytest.fixture
def upstream(own_upstream: MisbehavingUpstream) -> MisbehavingUpstream:
    return own_upstream


def request_for(upstream: MisbehavingUpstream, behaviour: str, method: str = "POST", **timeout: float) -> httpx.Request:
    url = f"{upstream.base_url}/chat/completions"
    return httpx.Request(method, url, json={"model": behaviour}, extensions={"timeout": timeout})


async def fetch(transport: Transport, upstream: MisbehavingUpstream, behaviour: str) -> bytes:
    response = await transport.handle_async_request(request_for(upstream, behaviour))
    return await response.aread()


@pytest.mark.anyio
async def test_it_is_a_transport_for_any_httpx_client(upstream: MisbehavingUpstream) -> None:
    async with httpx.AsyncClient(transport=Transport()) as client:
        response = await client.post(f"{upstream.base_url}/chat/completions?a=b", json={"model": "ok"})
        assert response.json() == completion()
        assert response.headers["x-request-id"] == "req-up"
        got = upstream.received[-1]
        assert (got.method, got.path) == ("POST", "/v1/chat/completions?a=b")
        assert got.headers["host"] == f"localhost:{upstream.port}"
        head = await client.head(f"{upstream.base_url}/models")
        assert head.status_code == 200
        assert head.content == b""


@pytest.mark.anyio
async def test_a_connection_serves_again(transport: Transport, upstream: MisbehavingUpstream) -> None:
    for _ in range(5):
        await fetch(transport, upstream, "ok")
    assert upstream.num_connections == 1
    assert len(upstream.received) == 5


@pytest.mark.anyio
@pytest.mark.parametrize("behaviour", ["close-after", "close-delimited"])
async def test_a_server_that_closes_after_each_answer_is_no_failure(
    transport: Transport, upstream: MisbehavingUpstream, behaviour: str
) -> None:
    for _ in range(5):
        assert b"chatcmpl" in await fetch(transport, upstream, behaviour)
    assert len(upstream.received) == 5


@pytest.mark.anyio
async def test_a_connection_that_died_idle_is_replaced(transport: Transport, upstream: MisbehavingUpstream) -> None:
    await fetch(transport, upstream, "stale")
    assert b"chatcmpl" in await fetch(transport, upstream, "stale")  # index 1 is reset, index 2 answers
    assert [request.behaviour for request in upstream.received] == ["stale"] * 3
    assert upstream.num_connections == 2


@pytest.mark.anyio
async def test_a_fresh_connection_that_dies_is_not_tried_again(
    transport: Transport, upstream: MisbehavingUpstream
) -> None:
    with pytest.raises(httpx.ReadError):
        await fetch(transport, upstream, "reset")
    assert len(upstream.received) == 1


@pytest.mark.anyio
async def test_a_request_that_may_have_been_worked_on_is_not_sent_again(
    transport: Transport, upstream: MisbehavingUpstream
) -> None:
    await fetch(transport, upstream, "dies-thinking")
    with pytest.raises(httpx.ReadError):
        await fetch(transport, upstream, "dies-thinking")
    assert len(upstream.received) == 2
    assert upstream.num_connections == 1


@pytest.mark.anyio
async def test_an_answer_that_had_begun_is_never_asked_for_again(
    transport: Transport, upstream: MisbehavingUpstream
) -> None:
    await fetch(transport, upstream, "ok")
    with pytest.raises(httpx.TransportError):
        await fetch(transport, upstream, "half-head")
    assert len(upstream.of("half-head")) == 1
    assert upstream.num_connections == 1


@pytest.mark.anyio
@pytest.mark.parametrize("behaviour", ["continue", "early-hints"])
async def test_informational_answers_are_passed_over(
    transport: Transport, upstream: MisbehavingUpstream, behaviour: str
) -> None:
    for _ in range(2):
        response = await transport.handle_async_request(request_for(upstream, behaviour))
        assert response.status_code == 200
        assert "link" not in response.headers
        assert b"chatcmpl" in await response.aread()
    assert upstream.num_connections == 1


@pytest.mark.anyio
async def test_answers_without_a_body_keep_the_connection(transport: Transport, upstream: MisbehavingUpstream) -> None:
    for _ in range(3):
        assert await fetch(transport, upstream, "no-content") == b""
    assert upstream.num_connections == 1


@pytest.mark.anyio
async def test_a_304_with_a_length_has_no_body(transport: Transport, upstream: MisbehavingUpstream) -> None:
    async def not_modified(wire: Wire) -> None:
        await wire.raw(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n")

    upstream.on("304", not_modified)
    for _ in range(2):
        response = await transport.handle_async_request(request_for(upstream, "304"))
        assert (response.status_code, await response.aread()) == (304, b"")


@pytest.mark.anyio
async def test_a_surplus_answer_is_never_given_to_the_next_request(
    transport: Transport, upstream: MisbehavingUpstream
) -> None:
    for _ in range(3):
        assert b"stolen" not in await fetch(transport, upstream, "surplus")
        await asyncio.sleep(0.02)
    assert upstream.num_connections == 3


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("garbage", "not HTTP"),
        ("bad-chunk", "not HTTP"),
        ("half-body", "middle of the answer"),
        ("half-chunk", "middle of the answer"),
        ("big-head", "longer than"),
        ("endless-head", "longer than"),
        ("upgrade", "switched protocols"),
    ],
)
async def test_broken_http_is_an_error(
    transport: Transport, upstream: MisbehavingUpstream, behaviour: str, message: str
) -> None:
    with pytest.raises(httpx.RemoteProtocolError, match=message):
        await fetch(transport, upstream, behaviour)
    assert b"chatcmpl" in await fetch(transport, upstream, "ok")


@pytest.mark.anyio
async def test_nobody_there_is_a_connect_error(transport: Transport) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        with pytest.raises(httpx.ConnectError):
            await transport.handle_async_request(httpx.Request("GET", url))
    with pytest.raises(httpx.ConnectError):
        await transport.handle_async_request(httpx.Request("GET", "http://no-such-host.invalid/"))


@pytest.mark.anyio
async def test_a_host_that_does_not_answer_is_a_connect_timeout(transport: Transport) -> None:
    with socket.socket() as full:  # its queue is full, so the kernel drops further connections
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        request = httpx.Request(
            "GET", f"http://127.0.0.1:{full.getsockname()[1]}/", extensions={"timeout": {"connect": 0.2}}
        )
        with pytest.raises(httpx.ConnectTimeout):
            await transport.handle_async_request(request)
        for filler in fillers:
            filler.close()


@pytest.mark.anyio
async def test_the_pool_is_bounded_and_hands_connections_on(upstream: MisbehavingUpstream) -> None:
    transport = Transport(max_connections=2)
    answers = await asyncio.gather(*(fetch(transport, upstream, "ok") for _ in range(20)))
    assert len(answers) == 20
    assert upstream.num_connections == 2
    held = [await transport.handle_async_request(request_for(upstream, "never-terminated")) for _ in range(2)]
    with pytest.raises(httpx.PoolTimeout):
        await transport.handle_async_request(request_for(upstream, "ok", pool=0.1))
    await held[0].aclose()
    assert b"chatcmpl" in await fetch(transport, upstream, "ok")
    await held[1].aclose()
    await transport.aclose()


@pytest.mark.anyio
async def test_waiters_that_give_up_lose_no_place(upstream: MisbehavingUpstream) -> None:
    transport = Transport(max_connections=1)
    held = await transport.handle_async_request(request_for(upstream, "never-terminated"))
    waiting = [asyncio.create_task(fetch(transport, upstream, "ok")) for _ in range(5)]
    await asyncio.sleep(0.02)
    for task in waiting[:3]:
        task.cancel()
    await held.aclose()
    assert len(await asyncio.gather(*waiting[3:])) == 2
    assert await asyncio.wait_for(fetch(transport, upstream, "ok"), 2)
    await transport.aclose()


@pytest.mark.anyio
async def test_idle_connections_are_closed_in_time(upstream: MisbehavingUpstream) -> None:
    transport = Transport(idle_s=0.1)
    await asyncio.gather(*(fetch(transport, upstream, "ok") for _ in range(3)))
    assert await asyncio.to_thread(upstream.wait_until, lambda: upstream.num_open == 0, 2)
    await transport.aclose()


@pytest.mark.anyio
async def test_cancelling_closes_the_connection_at_once(transport: Transport, upstream: MisbehavingUpstream) -> None:
    task = asyncio.create_task(fetch(transport, upstream, "silence"))
    assert await asyncio.to_thread(upstream.wait_until, lambda: len(upstream.of("silence")) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(
        upstream.wait_until, lambda: upstream.of("silence")[0].hung_up_after_s is not None, 1.0
    )


@pytest.mark.anyio
async def test_a_slow_reader_holds_the_sender_back(transport: Transport, upstream: MisbehavingUpstream) -> None:
    sent = 0

    async def flood(wire: Wire) -> None:
        nonlocal sent
        await wire.start_events()
        for _ in range(400):
            await wire.piece(b"x" * 65536)
            sent += 65536
        await wire.raw(b"0\r\n\r\n")

    upstream.on("flood", flood)
    response = await transport.handle_async_request(request_for(upstream, "flood"))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    await asyncio.sleep(0.5)
    assert sent < 400 * 65536  # the sockets' buffers are full, and ours holds little more than HIGH_WATER
    pieces = [piece async for piece in response.stream]
    assert max(map(len, pieces)) < 4 * HIGH_WATER
    assert sum(map(len, pieces)) == 400 * 65536
    await response.aclose()
    assert b"chatcmpl" in await fetch(transport, upstream, "ok")


@pytest.mark.anyio
async def test_a_header_with_a_line_break_never_leaves(transport: Transport, upstream: MisbehavingUpstream) -> None:
    request = httpx.Request("POST", f"{upstream.base_url}/x", headers=[(b"x-a", b"1\r\nx-b: 2")], content=b"{}")
    with pytest.raises(httpx.LocalProtocolError):
        await transport.handle_async_request(request)
    assert upstream.num_connections == 0


def tls_upstream(certificate: str) -> MisbehavingUpstream:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(DATA / certificate)
    upstream = MisbehavingUpstream(SCRIPTS, context)
    upstream.start()
    return upstream


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SSL_CERT_FILE", str(DATA / "test-ca.pem"))
    yield
    transport_module._ssl_context.cache_clear()


@pytest.mark.anyio
@pytest.mark.usefixtures("trusting")
async def test_tls_with_a_trusted_certificate(transport: Transport) -> None:
    upstream = tls_upstream("localhost.pem")
    for _ in range(3):
        assert b"chatcmpl" in await fetch(transport, upstream, "ok")
    assert upstream.num_connections == 1
    assert len(await fetch(transport, upstream, "large")) > 3_000_000
    with pytest.raises(httpx.TransportError):
        await fetch(transport, upstream, "half-body")
    await transport.aclose()
    upstream.stop()


@pytest.mark.anyio
@pytest.mark.usefixtures("trusting")
async def test_tls_checks_the_name(transport: Transport) -> None:
    upstream = tls_upstream("elsewhere.pem")
    with pytest.raises(httpx.ConnectError, match=r"(?i)hostname|certificate"):
        await fetch(transport, upstream, "ok")
    assert not upstream.received
    upstream.stop()


@pytest.mark.anyio
async def test_tls_does_not_trust_strangers(transport: Transport) -> None:
    upstream = tls_upstream("localhost.pem")
    with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
        await fetch(transport, upstream, "ok")
    assert not upstream.received
    upstream.stop()


def test_proxies_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert proxy_for(httpx.URL("https://api.example.com/v1")) is None
    assert isinstance(transport_for("https://api.example.com/v1", 10), Transport)
    monkeypatch.setenv("HTTPS_PROXY", "proxy.corp:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,.inside.example")
    assert proxy_for(httpx.URL("https://api.example.com/v1")) == "http://proxy.corp:3128"
    assert proxy_for(httpx.URL("http://api.example.com/v1")) is None
    assert proxy_for(httpx.URL("https://llm.inside.example/v1")) is None
    assert isinstance(transport_for("https://api.example.com/v1", 10), httpx.AsyncHTTPTransport)


class Recorder(asyncio.Transport):
    """The least of a transport, so that a connection can be fed any split of an answer."""

    def __init__(self) -> None:
        self.closed = False

    def writelines(self, list_of_data: Any) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Long: " + b"y" * 40 + b"\r\n"
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    + HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: 1\r\n\r\n"
)
SIZED = HEAD + b"Content-Length: 11\r\n\r\nhello world"


@given(st.sampled_from([CHUNKED, SIZED]), st.lists(st.integers(1, len(CHUNKED)), max_size=12))
@settings(deadline=None)
def test_any_split_of_an_answer_is_the_same_answer(answer: bytes, cuts: list[int]) -> None:
    idle: list[Connection] = []
    connection = Connection(idle.append, lambda _: None)
    connection.connection_made(Recorder())
    exchange: Exchange = connection.send(b"POST", [b"request"])
    edges = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    for start, end in itertools.pairwise(edges):
        assert not exchange.complete
        connection.data_received(answer[start:end])
    assert exchange.complete
    assert exchange.status == 200
    assert exchange.headers is not None
    assert exchange.headers[b"x-long"] == b"y" * 40
    with pytest.raises(StopIteration) as returned:  # nothing to wait for, so no event loop is needed
        exchange.read().send(None)
    assert returned.value.value == b"hello world"
    assert idle == [connection]
