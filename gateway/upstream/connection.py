"""One keep-alive HTTP/1.1 connection and the exchanges that run over it, one after the other.

RFC 9112 over asyncio.Protocol; httptools parses. Knows no URL, no pool and no retries. Errors are httpx's.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import httptools
import httpx

from gateway.upstream.exchange import Exchange, UnansweredError

HIGH_WATER = 256 * 1024  # bytes waiting for a slow reader before the socket is no longer read
LINGER_BYTES = 64 * 1024  # what an answer may still send after its reader has enough, for the connection to be kept
LINGER_S = 1.0
MAX_HEAD_BYTES = 64 * 1024


class Connection(asyncio.Protocol):
    """Owned by a pool, which is told when the connection is free again (`on_idle`) and when it is gone (`on_lost`)."""

    def __init__(
        self,
        on_idle: Callable[["Connection"], None],
        on_lost: Callable[["Connection"], None],
        max_head_bytes: int = MAX_HEAD_BYTES,
    ) -> None:
        self.idle_since = 0.0
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._max_head_bytes = max_head_bytes
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._served = False  # an answer, whole
        self._buffered = 0  # bytes that wait for the reader, or more: as they came over the wire
        self._paused = False
        self._lingered: int | None = None  # bytes dropped since `linger`; None: the reader still reads
        self._linger_timer: asyncio.TimerHandle | None = None
        # The parser itself puts headers (the first of a name counts) and pieces of the body where they belong.
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self.on_header = self._headers.setdefault
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)
        self._keep_alive = False
        self._message_done = False  # all that the reader needs is here ...
        self._parsed_whole = True  # ... and the parser agrees: a HEAD's content-length makes it wait for more
        self._surplus = False  # bytes after the end of the answer: nobody else will be served over this connection

    @property
    def usable(self) -> bool:
        return self._exchange is None and self._transport is not None and not self._transport.is_closing()

    def send(self, method: bytes, parts: Sequence[bytes]) -> Exchange:
        """Writes a request. The connection must be idle."""
        assert self._transport is not None
        assert self._exchange is None
        self._headers.clear()
        self._head_bytes = 0
        self._message_done = False
        self._bodyless = method == b"HEAD"  # no body follows, whatever the headers say
        self._exchange = exchange = Exchange(self, self._pieces)
        self._transport.writelines(parts)
        return exchange

    def abort(self) -> None:
        """Closes at once, whatever is still to be sent or read."""
        self._stop_lingering()
        if self._exchange is not None:
            self._exchange.fail(httpx.ReadError("the connection was closed here"))
            self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        self._buffered = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def linger(self) -> None:
        self._lingered = 0
        self._pieces.clear()
        self.resume()
        self._linger_timer = asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def _stop_lingering(self) -> None:
        self._lingered = None
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods and not the base class

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:  # nobody asked: an answer that came too late, or a server that says goodbye
            self.abort()
            return
        if exchange.headers is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # our bug
        except httptools.HttpParserUpgrade:
            self._break_off("the upstream switched protocols")
            return
        except httptools.HttpParserError as error:
            if not self._message_done:
                self._break_off(f"not HTTP: {error}")
                return
            self._surplus = True
        if self._head_bytes > self._max_head_bytes and self._is_head_too_long(exchange):
            self._break_off(f"the answer's headers are longer than {self._max_head_bytes} bytes")
        elif self._message_done:
            self._finish(exchange)
        elif self._lingered is not None:
            self._drop_pieces()
        else:
            self._buffered += len(data)
            if self._buffered > HIGH_WATER:
                self._pause()
            exchange.wake()

    def eof_received(self) -> None:
        self._end_of_input("the upstream closed the connection")

    def connection_lost(self, error: Exception | None) -> None:
        self._end_of_input(f"the connection broke: {error}" if error else "the upstream closed the connection", error)
        self._stop_lingering()
        self._transport = None
        self._on_lost(self)

    # What the parser calls, beside `on_header` and `on_body`.

    def on_message_begin(self) -> None:
        if self._message_done:
            self._surplus = True

    def on_headers_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or self._surplus:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            return  # another answer follows
        self._keep_alive = self._parser.should_keep_alive()
        exchange.status = status
        exchange.headers = dict(zip(map(bytes.lower, self._headers), self._headers.values(), strict=True))
        if self._bodyless or status in (204, 304):
            self._parsed_whole = False
            self._end_body(exchange)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.headers is None:  # of an informational answer
            self._headers.clear()
            return
        self._parsed_whole = True
        if not self._message_done:
            self._end_body(exchange)

    def _end_body(self, exchange: Exchange) -> None:
        """Whatever the parser still finds belongs to no answer."""
        self._message_done = True
        exchange.pieces = self._pieces.copy()
        self._pieces.clear()

    def _finish(self, exchange: Exchange) -> None:
        """The answer is complete: the connection is free again, if both sides want that."""
        self._exchange = None
        if self._lingered is not None:
            self._stop_lingering()
        exchange.finish()
        transport = self._transport
        if transport is None:
            return
        clean = self._keep_alive and self._parsed_whole and not self._surplus and not self._pieces
        if clean and not transport.is_closing() and transport.get_write_buffer_size() == 0:
            self._served = True
            if self._buffered:
                self.resume()
            self._on_idle(self)
        else:
            transport.abort()

    def _is_head_too_long(self, exchange: Exchange) -> bool:
        if exchange.headers is not None:  # and much of the body came with it
            self._head_bytes = sum(len(name) + len(value) + 4 for name, value in exchange.headers.items())
        return self._head_bytes > self._max_head_bytes

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _drop_pieces(self) -> None:
        assert self._lingered is not None
        self._lingered += sum(map(len, self._pieces))
        self._pieces.clear()
        if self._lingered > LINGER_BYTES:
            self.abort()

    def _break_off(self, reason: str) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.fail(httpx.RemoteProtocolError(reason))
        self.abort()

    def _end_of_input(self, reason: str, error: Exception | None = None) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if exchange.headers is None or error is not None:
            dead = self._served and not self._head_bytes
            exchange.fail(UnansweredError(reason) if dead else httpx.ReadError(reason))
        elif _says_its_end(exchange.headers):
            exchange.fail(httpx.RemoteProtocolError(f"{reason} in the middle of the answer"))
        else:  # a body that the end of the connection ends
            self._end_body(exchange)
            exchange.finish()


def _says_its_end(headers: Mapping[bytes, bytes]) -> bool:
    return b"content-length" in headers or b"chunked" in headers.get(b"transfer-encoding", b"").lower()
