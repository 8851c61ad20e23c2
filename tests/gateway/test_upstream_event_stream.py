"""What of an upstream's events reaches a client, however the network cuts them: nothing unreadable, never our key."""

import asyncio

import pytest

from gateway.upstream.answer import HttpAnswer
from gateway.upstream.errors import ProtocolFailure
from gateway.upstream.event_stream import EventStream
from gateway.upstream.exchange import Exchange
from gateway.upstream.waiting import Limit

pytestmark = pytest.mark.anyio
SECRET = b"sk-upstream-secret-0123456789"
TOKEN = b'{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}'
STOP = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
TELLING = TOKEN.replace(b'"x"', b'"%b"' % SECRET)


class Line:
    """The connection under an exchange, which hands over one piece after the other."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self.exchange = Exchange(self, [])
        self.exchange.status, self.exchange.headers = 200, {b"content-type": b"text/event-stream"}
        self.resume()

    def resume(self) -> None:
        if self._pieces:
            self.exchange.pieces.append(self._pieces.pop(0))
        else:
            self.exchange.complete = True

    def abort(self) -> None: ...

    def linger(self) -> None: ...


async def read(pieces: list[bytes]) -> tuple[list[bytes], str | None]:
    """The payloads, and why there are no more of them."""
    patience = Limit(asyncio.get_running_loop().time() + 10, "total", 10)
    events = EventStream(HttpAnswer(Line(pieces).exchange, patience, 10), patience, secret=SECRET)
    got: list[bytes] = []
    try:
        async for payloads in events:
            got += payloads
    except ProtocolFailure as failure:
        return got, str(failure)
    return got, None


def event(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


@pytest.mark.parametrize("cut", [1, 7, 60, 70, 80, 1000])
async def test_our_key_is_not_told_wherever_the_network_cuts_it(cut: int) -> None:
    sent = event(TOKEN) + event(TELLING) + event(TOKEN)
    pieces = [sent[start : start + cut] for start in range(0, len(sent), cut)]
    got, failure = await read(pieces)
    assert got == [TOKEN]
    assert failure is not None
    assert "repeats our key" in failure


async def test_what_is_no_json_is_not_passed_on_at_the_end_either() -> None:
    """An event that lacks its blank line is read when the stream ends."""
    got, failure = await read([event(TOKEN) + b"data: <html>Bad gateway</html>\n"])
    assert (got, failure) == ([TOKEN], "an event that is no JSON")


async def test_nor_is_our_key() -> None:
    got, failure = await read([event(TOKEN) + event(TELLING)[:60], event(TELLING)[60:-1]])
    assert got == [TOKEN]
    assert failure is not None
    assert "repeats our key" in failure


async def test_an_end_without_its_blank_line_is_one() -> None:
    assert await read([event(TOKEN) + event(STOP)[:-1]]) == ([TOKEN, STOP], None)
    assert await read([event(TOKEN) + event(STOP) + b"data: [DONE]"]) == ([TOKEN, STOP, b"[DONE]"], None)


async def test_what_comes_behind_the_end_counts_for_nothing() -> None:
    pieces = [event(TOKEN) + event(STOP) + event(b"[DONE]") + event(b"no JSON") + event(TELLING)]
    assert await read(pieces) == ([TOKEN, STOP, b"[DONE]"], None)
