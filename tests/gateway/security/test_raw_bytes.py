"""Bytes that no client would send, to the real server: refused, or answered once and framed well; never a traceback.

Heads, framing and their limits are granian's (hyper's) to judge; what it lets through is ours.
"""

import json
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.in_process import CONFIG, chat
from tests.support.server import Gateway

PATIENCE_S = 1.5
LATEST_S = 10.0  # generous: the machine may be busy
BODY = json.dumps(chat()).encode()
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def gateway(_running_upstream: MisbehavingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    server = f"[server]\nslow_client_timeout_s = {PATIENCE_S}\nmax_body_mb = 0.1\n[cache]"
    config = CONFIG.replace("{upstream}", _running_upstream.base_url).replace("[cache]", server, 1)
    with Gateway.over(config, tmp_path_factory.mktemp("raw")) as running:
        yield running
        assert "Traceback" not in running.log
        assert "panicked" not in running.log


@pytest.fixture(scope="module")
def authorization(gateway: Gateway) -> bytes:
    return f"Authorization: Bearer {gateway.key('acme')}\r\n".encode()


def say(gateway: Gateway, data: bytes, patience_s: float = LATEST_S) -> bytes:
    """All that comes back until the server closes the line; we hang up after a silence of `patience_s`."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=patience_s) as line:
        heard = b""
        with suppress(ConnectionResetError, BrokenPipeError):  # it had heard enough, and may have said why
            line.sendall(data)
        try:
            while piece := line.recv(65_536):
                heard += piece
        except ConnectionResetError:
            pass
        except TimeoutError:
            assert patience_s < LATEST_S, "the server keeps a line open for ever"
        return heard


def statuses(heard: bytes) -> list[int]:
    return [int(part[:3]) for part in heard.split(b"HTTP/1.1 ")[1:]]


def with_body(extra: bytes, body: bytes = BODY) -> bytes:
    return CHAT + extra + b"\r\n" + body


LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = LIVE + b"\r\n"


@pytest.mark.parametrize(
    "extra",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        LENGTH + b"X-A: b\r\n c\r\n",  # obs-fold
        LENGTH + b"X-A : b\r\n",
        LENGTH + b"X-A: a\x00b\r\n",
        LENGTH + b"X-A: a\rb\r\n",
    ],
)
def test_what_could_be_framed_in_two_ways_is_refused(gateway: Gateway, authorization: bytes, extra: bytes) -> None:
    assert statuses(say(gateway, with_body(authorization + extra) + SMUGGLED)) == [400]


def test_of_two_framings_the_chunks_count_and_the_line_is_closed(gateway: Gateway, authorization: bytes) -> None:
    """RFC 9112, section 6.3: what follows is not taken for a request."""
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    heard = say(gateway, with_body(authorization + b"Content-Length: 5\r\n" + CHUNKED, chunks) + SMUGGLED)
    assert statuses(heard) == [200]
    assert b'"status"' not in heard


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (LIVE + b"".join(b"x-%d: a\r\n" % number for number in range(200)) + b"\r\n", 431),
        (LIVE + b"x: " + b"a" * 4_000_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (with_body(b"Content-Length: 200000\r\n"), 413),
    ],
    ids=["headers", "a header", "a URL", "a body"],
)
def test_there_is_a_limit_to(gateway: Gateway, authorization: bytes, data: bytes, status: int) -> None:
    assert statuses(say(gateway, data.replace(b"Host: x\r\n", b"Host: x\r\n" + authorization, 1)))[:1] == [status]


def test_a_body_without_an_announcement_has_the_same_limit(gateway: Gateway, authorization: bytes) -> None:
    chunks = b"1000\r\n" + b"a" * 4096 + b"\r\n"
    assert statuses(say(gateway, with_body(authorization + CHUNKED, chunks * 40 + b"0\r\n\r\n")))[:1] == [413]


@pytest.mark.parametrize("data", [b"", b"GET /hea", LIVE, LIVE + b"\r\n"], ids=["nothing", "a line", "a head", "idle"])
def test_a_line_on_which_no_head_comes_is_closed(gateway: Gateway, data: bytes) -> None:
    began = time.monotonic()
    heard = say(gateway, data)
    assert statuses(heard) == ([200] if data.endswith(b"\r\n\r\n") else [])
    assert time.monotonic() - began < LATEST_S


def test_a_head_that_trickles_in_is_not_waited_for(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=LATEST_S) as line:
        line.sendall(LIVE)
        began = time.monotonic()
        with suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() - began < LATEST_S:
                line.sendall(b"x: y\r\n")
                time.sleep(0.05)  # how slow it is, not a wait for something
        assert time.monotonic() - began < LATEST_S


def test_idle_lines_keep_nobody_out(gateway: Gateway, authorization: bytes) -> None:
    idle = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(300)]
    try:
        for line in idle:
            line.sendall(LIVE)
        assert statuses(say(gateway, with_body(authorization + LENGTH))) == [200]
    finally:
        for line in idle:
            line.close()


def test_noise_is_never_a_traceback_and_never_a_wait(gateway: Gateway, authorization: bytes) -> None:
    """Seeded: good requests with some bytes changed, lost, doubled or moved."""
    chance = random.Random(20_261_130)
    good = [
        with_body(authorization + LENGTH),
        with_body(authorization + CHUNKED, b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)),
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + authorization + b"\r\n",
        b"GET /v1/files?limit=5&after=%41 HTTP/1.1\r\nHost: x\r\n" + authorization + b"\r\n",
    ]
    spoiled = [_spoiled(chance.choice(good), chance) for _ in range(300)]
    with ThreadPoolExecutor(30) as callers:
        for sent, heard in zip(spoiled, callers.map(lambda data: say(gateway, data, 0.5), spoiled), strict=True):
            assert all(status < 500 for status in statuses(heard)), sent
    assert statuses(say(gateway, LIVE + b"\r\n")) == [200]


def _spoiled(data: bytes, chance: random.Random) -> bytes:
    spoiled = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(spoiled))
        end = min(len(spoiled), start + chance.choice((1, 1, 2, 20)))
        piece = bytes(spoiled[start:end])
        spoiled[start:end] = chance.choice((chance.randbytes(len(piece)), b"", piece * 2, b"\r\n", b"\0", piece[::-1]))
    return bytes(spoiled)


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses", "embeddings", "moderations", "batches"])
@pytest.mark.parametrize("body", [b"[" * 40_000, b'{"a":' * 15_000, b"\xff", b"", b"null", b'{"model":1e999999}'])
def test_bodies_that_are_nothing(gateway: Gateway, authorization: bytes, path: str, body: bytes) -> None:
    head = b"POST /v1/%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n" % (
        path.encode(),
        len(body),
    )
    assert statuses(say(gateway, head + authorization + b"\r\n" + body)) == [400]
