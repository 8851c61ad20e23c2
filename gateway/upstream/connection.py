"""One keep-alive HTTP/1.1 connection and the exchanges that run over it, one after the other.

RFC 9112 over asyncio.Protocol; httptools parses. Knows no URL, no pool and no retries. Errors are httpx's.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import httptools
import httpx

from gateway.upstream.exchange import Exchange

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
        self.num_served = 0
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._max_head_bytes = max_head_bytes
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: Exchange | None = None
        self._paused = False
        self._lingered: int | None = None  # bytes dropped since `linger`; None: the reader still reads
        self._linger_timer: asyncio.TimerHandle | None = None
        self._start_message(bodyless=False)

    def _start_message(self, bodyless: bool) -> None:
        self._take: Callable[[bytes], None] | None = None  # pieces of a body that somebody reads
        self._bodyless = bodyless  # no body follows, whatever the headers say
        self._framed = False  # the answer says where it ends
        self._keep_alive = False
        self._message_done = False  # all that the reader needs is here ...
        self._parsed_whole = False  # ... and the parser agrees: a HEAD's content-length makes it wait for more
        self._surplus = False  # bytes after the end of the answer
        self._informational = False  # a 1xx answer, which another one follows
        self._head_bytes = 0

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._exchange is None

    def send(self, method: bytes, parts: Sequence[bytes]) -> Exchange:
        """Writes a request. The connection must be idle."""
        assert self._transport is not None
        assert self._exchange is None
        self._start_message(bodyless=method == b"HEAD")
        self._exchange = exchange = Exchange(self, reused=self.num_served > 0)
        self.num_served += 1
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
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def linger(self) -> None:
        self._take = None
        self._lingered = 0
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
        exchange.started = True
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
        exchange.buffered += len(data)
        if not exchange.head_done:
            self._head_bytes += len(data)
        if self._head_bytes > self._max_head_bytes:
            self._break_off(f"the answer's headers are longer than {self._max_head_bytes} bytes")
        elif self._message_done:
            self._finish(exchange)
        elif self._lingered is not None and self._lingered > LINGER_BYTES:
            self.abort()
        else:
            if exchange.buffered > HIGH_WATER and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
            exchange.wake()

    def eof_received(self) -> None:
        self._end_of_input("the upstream closed the connection")

    def connection_lost(self, error: Exception | None) -> None:
        self._end_of_input(f"the connection broke: {error}" if error else "the upstream closed the connection", error)
        self._stop_lingering()
        self._transport = None
        self._on_lost(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._message_done:
            self._surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange = self._exchange
        if exchange is None or self._surplus:
            return
        name = name.lower()
        if name == b"content-length" or (name == b"transfer-encoding" and b"chunked" in value.lower()):
            self._framed = True
        exchange.headers.append((name, value))

    def on_headers_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or self._surplus:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._informational = True
            return
        exchange.status = status
        self._keep_alive = self._parser.should_keep_alive()
        self._head_bytes = sum([len(name) + len(value) + 4 for name, value in exchange.headers])
        exchange.head_arrived()
        if self._bodyless or status in (204, 304):
            self._bodyless = self._message_done = True
        else:
            self._take = exchange.take_in

    def on_body(self, chunk: bytes) -> None:
        if self._take is not None:
            self._take(chunk)
        elif self._bodyless:
            self._surplus = True
        elif self._lingered is not None:
            self._lingered += len(chunk)

    def on_message_complete(self) -> None:
        if self._informational:
            self._informational = False
            if self._exchange is not None:
                self._exchange.headers.clear()
            self._framed = False
            return
        self._message_done = self._parsed_whole = True
        self._take = None

    def _finish(self, exchange: Exchange) -> None:
        """The answer is complete: the connection is free again, if both sides want that."""
        self._exchange = None
        self._stop_lingering()
        exchange.finish()
        transport = self._transport
        if transport is None:
            return
        clean = self._keep_alive and self._parsed_whole and not self._surplus and not transport.is_closing()
        if clean and transport.get_write_buffer_size() == 0:
            self.resume()
            self._on_idle(self)
        else:
            transport.abort()

    def _break_off(self, reason: str) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.fail(httpx.RemoteProtocolError(reason))
        self.abort()

    def _end_of_input(self, reason: str, error: Exception | None = None) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if exchange.head_done and not self._framed and error is None:
            exchange.finish()  # a body that the end of the connection ends
        elif error is not None or not exchange.head_done:
            exchange.fail(httpx.ReadError(reason))
        else:
            exchange.fail(httpx.RemoteProtocolError(f"{reason} in the middle of the answer"))
