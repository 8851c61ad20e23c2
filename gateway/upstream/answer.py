"""One answer of an HTTP upstream: its bytes, decoded, as a whole or as events, each wait under its limit."""

import itertools
from collections import deque
from collections.abc import AsyncIterator, Sequence

import httpx

from gateway.upstream.encoding import Inflater
from gateway.upstream.errors import (
    ConnectFailure,
    CrowdedFailure,
    Phase,
    ProtocolFailure,
    TimeoutFailure,
    UpstreamFailure,
)
from gateway.upstream.formats import OPENAI, Format
from gateway.upstream.timer import PhaseTimer
from gateway.upstream.transport import Body
from gateway.wire.sse import DONE, EventTooLargeError, SseParser

# Headers that a client may want to see. The others tell of the operator's account (organization, project, quotas).
KEPT = {
    b"content-type",
    b"openai-processing-ms",
    b"openai-version",
    b"retry-after",
    b"retry-after-ms",
    b"x-should-retry",
}
RATE_LIMITS = (b"x-ratelimit-", b"anthropic-ratelimit-")  # kept on a 429 only, which they explain
_OPEN, _CLOSE = b"{}"
MAX_INFLATED_PIECE = 64 * 1024 * 1024


def translate(error: httpx.HTTPError, connect_s: float = 0.0) -> UpstreamFailure:
    """httpx's errors as ours."""
    if isinstance(error, httpx.PoolTimeout):
        return CrowdedFailure(str(error) or "no connection fell free")
    if isinstance(error, httpx.ConnectTimeout):
        return TimeoutFailure("connect", connect_s)
    if isinstance(error, httpx.ConnectError | httpx.ProxyError | httpx.UnsupportedProtocol):
        return ConnectFailure(str(error))
    return ProtocolFailure(str(error) or type(error).__name__)


class HttpAnswer:
    """What came after the status line. Raises UpstreamFailure for whatever goes wrong with it."""

    def __init__(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], stream: httpx.AsyncByteStream, timer: PhaseTimer
    ) -> None:
        self.status = status
        self.content_type = b""
        self.kept: list[tuple[bytes, bytes]] = []
        self._stream = stream
        self._exchange = stream.exchange if isinstance(stream, Body) else None
        self._pieces = aiter(stream)
        self._timer = timer
        self._coding = "identity"
        self._inflater: Inflater | None = None
        for name, value in headers:
            self._look_at(name.lower(), value)

    def _look_at(self, name: bytes, value: bytes) -> None:
        if name == b"content-type":
            self.content_type = value.partition(b";")[0].strip().lower()
        elif name == b"content-encoding":
            self._coding = value.decode("latin-1").strip().lower()
        elif name in (b"x-request-id", b"request-id"):
            name = b"x-upstream-request-id"  # ours goes by the other name
        elif name not in KEPT and not (self.status == 429 and name.startswith(RATE_LIMITS)):
            return
        if name != b"content-encoding":
            self.kept.append((name, value))

    def start(self) -> None:
        """Before the first read. Raises ProtocolFailure for an encoding that we can't undo."""
        if self._coding not in ("", "identity"):
            try:
                self._inflater = Inflater(self._coding)
            except httpx.DecodingError as error:
                raise translate(error) from error

    async def read(self, phase: Phase, seconds: float, *, from_start: bool = False) -> bytes:
        """The next bytes, b"" at the end."""
        if self._exchange is not None and self._inflater is None and self._exchange.ready:
            return self._exchange.take()
        try:
            with self._timer.limit(phase, seconds, from_start=from_start):
                while True:
                    piece = await anext(self._pieces, None)
                    if self._inflater is None:
                        return piece or b""
                    if piece is None:
                        return self._end_of_inflated(self._inflater)
                    if inflated := self._inflater.feed(piece, MAX_INFLATED_PIECE):
                        return inflated
        except httpx.HTTPError as error:
            raise translate(error) from error

    @staticmethod
    def _end_of_inflated(inflater: Inflater) -> bytes:
        if not inflater.finished:
            raise ProtocolFailure("the compressed answer is cut off")
        return b""

    async def whole(self, limit: int, idle_s: float) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read("idle", idle_s):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise ProtocolFailure(f"the answer is longer than {limit} bytes")
        await self.aclose()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def linger(self) -> None:
        """All that matters is here: the rest may run out so that the connection can be used again."""
        if self._exchange is not None:
            self._exchange.linger()

    async def aclose(self) -> None:
        self._timer.close()
        await self._stream.aclose()


class EventStream(AsyncIterator[list[bytes]]):
    """The data payloads of an event stream, as many as arrived together; its end (`[DONE]`) is the last if it was sent.

    A stream without its end counts as whole if one of its last payloads told of a finish; else it is a ProtocolFailure.
    """

    def __init__(
        self, answer: HttpAnswer, first_token_s: float, idle_s: float, format: Format = OPENAI, secret: bytes = b""
    ) -> None:
        """`secret`: what no client may see, whoever says it."""
        self._answer = answer
        self._format = format
        self._secret = secret
        self._fault: ProtocolFailure | None = None
        self._parser = SseParser()
        self._first_token_s = first_token_s
        self._idle_s = idle_s
        self._begun = False
        self._ended = False  # no more will be read
        self._complete = False  # its end was sent
        self._last: deque[bytes] = deque(maxlen=8)

    async def __anext__(self) -> list[bytes]:
        try:
            return await self._next()
        except BaseException:
            await self._answer.aclose()
            raise

    async def _next(self) -> list[bytes]:
        while not self._ended:
            payloads = self._parse(await self._read() if self._fault is None else b"")
            if not payloads:
                continue
            self._begun = self._begun or not all(map(self._format.is_prelude, payloads))
            self._last.extend(payloads)
            end = self._format.find_end(payloads)
            if end is not None:
                self._ended = True
                self._complete = True
                self._answer.linger()
                return payloads[: end + 1]
            return payloads
        if not self._complete and not any(map(self._format.is_finish, self._last)):
            raise ProtocolFailure("the event stream ended before the answer did")
        raise StopAsyncIteration

    async def _read(self) -> bytes:
        if self._begun:
            return await self._answer.read("idle", self._idle_s)
        return await self._answer.read("first_token", self._first_token_s, from_start=True)  # comments don't count

    def _parse(self, piece: bytes) -> list[bytes]:
        """What is whole comes before the failure that a broken event is."""
        if self._fault is not None:
            raise self._fault
        if not piece:
            self._ended = True
            return self._parser.close()
        clean, nul, _ = piece.partition(b"\0")
        if self._secret and self._secret in clean:
            clean = clean.partition(self._secret)[0]
            self._fault = ProtocolFailure("a stream that repeats our key, which is not for the client to see")
        try:
            payloads = self._parser.feed(clean)
        except EventTooLargeError as error:
            raise ProtocolFailure(str(error)) from error
        if nul or not _may_all_be_json(payloads):
            self._fault = ProtocolFailure("an event that is no JSON")
            return list(itertools.takewhile(_may_be_json, payloads))
        return payloads


def _may_all_be_json(payloads: list[bytes]) -> bool:
    if b"".join(payloads).isascii():  # then all that is left to be looked at is how they begin and end
        payloads = [each for each in payloads if each[0] != _OPEN or each[-1] != _CLOSE]
    return all(map(_may_be_json, payloads))


def _may_be_json(payload: bytes) -> bool:
    """Whether a payload looks like an object: a client's parser would stumble over anything else."""
    if payload == DONE:
        return True
    if not (payload.startswith(b"{") and payload.endswith(b"}")):
        payload = payload.strip()
        if not (payload.startswith(b"{") and payload.endswith(b"}")):
            return False
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
