"""The client's end of an event stream: something is heard while nothing is to be said, and who won't read is let go.

Stands for ASGI's `send`. Knows messages and their timing, and nothing of what they say.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.errors import ApiError, ClientClosedRequest
from gateway.time_limit import TimeLimit

COMMENT = b": keep-alive\n\n"  # server-sent events' own way to say nothing: every client skips it
PIECE_BYTES = 256 * 1024  # of a whole answer that is longer: the server holds no more of it for a slow reader

Head = Callable[[], list[tuple[bytes, bytes]]]


class Heartbeat:
    """Passes on what is sent. Once begun, it speaks up after `interval_s` of silence (0: never), and opens the stream
    itself if need be: its status is then 200, whatever comes. Whoever takes nothing for `patience_s` is reported to
    `on_stuck`.

    One timer for both, moved rarely: it looks at the clock when it rings, not at every message.
    """

    __slots__ = (
        "_beat", "_head", "_interval_s", "_latest", "_loop", "_patience_s", "_send", "_sending", "_timer", "_why",
        "on_stuck", "opened",
    )  # fmt: skip

    def __init__(self, send: Any, interval_s: float, patience_s: float) -> None:
        """What only a stream needs is there once it has begun: most answers are none."""
        self.opened = False  # the headers have left
        self.on_stuck: Callable[[ApiError], None] | None = None
        self._send = send
        self._interval_s = interval_s
        self._patience_s = patience_s
        self._head: Head | None = None  # of the stream; None: not begun
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, head: Head) -> None:
        """The answer will be a stream; `head` gives the headers that it would have if it were opened now."""
        self._head = head
        self._beat: asyncio.Task[None] | None = None
        self._why: ClientClosedRequest | None = None  # the client was reported: nothing is sent to it any more
        self._sending = False
        self._loop = asyncio.get_running_loop()
        self._latest = self._loop.time()  # when a message was begun or done
        self._set_timer()

    def watch(self) -> None:
        """The answer is a stream of other bytes: nothing is said in it, but who won't read it is reported."""
        if self._head is None:
            self._interval_s = 0.0
            self.begin(list)

    def stop(self) -> None:
        """Nothing is said from now on that was not sent. A stream that was opened stays so."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """The stream is over, one way or the other."""
        self.stop()
        if self._head is not None and self._beat is not None:
            self._beat.cancel()

    def __call__(self, message: dict[str, Any]) -> Awaitable[None]:
        """Raises ClientClosedRequest where nobody reads."""
        if self._head is None:
            body = message.get("body", b"")
            return self._in_pieces(message, body) if len(body) > PIECE_BYTES else self._send(message)
        if message.get("more_body") and self._beat is None and self._why is None:
            return self._pass_on(message)  # a piece, and nothing in its way
        return self._take(message)

    async def _take(self, message: dict[str, Any]) -> None:
        if self._why is not None:
            raise self._why
        if self._beat is not None:
            await self._beat
            self._beat = None
        if message["type"] == "http.response.start":
            if self.opened:
                return
            self.opened = True
        elif not message.get("more_body", False):
            self.stop()
            body = message.get("body", b"")
            await (self._in_pieces(message, body) if body else self._send(message))
            return
        await self._pass_on(message)

    async def _pass_on(self, message: dict[str, Any]) -> None:
        self._latest, self._sending = self._loop.time(), True
        try:
            await self._send(message)
        finally:
            self._latest, self._sending = self._loop.time(), False

    def _set_timer(self) -> None:
        """A message that is begun after this is looked at in time, too: within twice the patience."""
        if self._sending:
            rings_at = self._latest + self._patience_s
        else:
            rings_at = self._loop.time() + self._patience_s
            if self._interval_s:
                rings_at = min(rings_at, self._latest + self._interval_s)
        self._timer = self._loop.call_at(rings_at, self._ring)

    def _ring(self) -> None:
        silent_s = self._loop.time() - self._latest + 0.001  # uvloop's clock has whole milliseconds
        if self._sending and silent_s >= self._patience_s:
            self._timer = None
            self._report()
            return
        if not self._sending and self._interval_s and silent_s >= self._interval_s:
            self._latest = self._loop.time()
            self._beat = self._loop.create_task(self._speak(), name="heartbeat")
        self._set_timer()

    def _report(self) -> None:
        self._why = self._read_nothing()
        if self._beat is not None:
            self._beat.cancel()
        if self.on_stuck is not None:
            self.on_stuck(self._why)

    def _read_nothing(self) -> ClientClosedRequest:
        return ClientClosedRequest(f"the client read nothing for {self._patience_s:g} s")

    async def _speak(self) -> None:
        assert self._head is not None
        if not self.opened:
            self.opened = True
            await self._pass_on({"type": "http.response.start", "status": 200, "headers": self._head()})
        await self._pass_on({"type": "http.response.body", "body": COMMENT, "more_body": True})

    async def _in_pieces(self, message: dict[str, Any], body: bytes) -> None:
        """A long body, or a stream's last. Raises ClientClosedRequest where a piece is not taken in time."""
        try:
            for start in range(0, len(body), PIECE_BYTES):
                piece = body[start : start + PIECE_BYTES]
                more = message.get("more_body", False) or start + PIECE_BYTES < len(body)
                with TimeLimit(self._patience_s):
                    await self._send(message | {"body": piece, "more_body": more})
        except TimeoutError:
            raise self._read_nothing() from None
