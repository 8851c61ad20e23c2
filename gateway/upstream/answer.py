"""One answer of an HTTP upstream: its bytes, decoded, each wait under its limit."""

import asyncio
from collections.abc import Mapping

import httpx

from gateway.upstream.encoding import Inflater
from gateway.upstream.errors import (
    ConnectFailure,
    CrowdedFailure,
    ProtocolFailure,
    TimeoutFailure,
    UpstreamFailure,
)
from gateway.upstream.exchange import Exchange
from gateway.upstream.foreign import ForeignExchange
from gateway.upstream.waiting import Limit

# Headers that a client may want to see, and what it gets them as: our id of a request has the usual name already.
# All others tell of the operator's account (organization, project, quotas).
KEPT = {
    b"content-type": b"content-type",
    b"openai-processing-ms": b"openai-processing-ms",
    b"openai-version": b"openai-version",
    b"retry-after": b"retry-after",
    b"retry-after-ms": b"retry-after-ms",
    b"x-should-retry": b"x-should-retry",
    b"x-request-id": b"x-upstream-request-id",
    b"request-id": b"x-upstream-request-id",
}
RATE_LIMITS = (b"x-ratelimit-", b"anthropic-ratelimit-")  # kept on a 429 only, which they explain
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


def kept_headers(status: int, headers: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """What of an answer's headers is for the client."""
    kept = {KEPT[name]: headers[name] for name in filter(headers.__contains__, KEPT)}
    if status == 429:
        kept |= {name: value for name, value in headers.items() if name.startswith(RATE_LIMITS)}
    return kept


class HttpAnswer:
    """What came after the status line. Raises UpstreamFailure for whatever goes wrong with it."""

    __slots__ = ("_exchange", "_idle_s", "_inflater", "_total", "content_type", "headers", "status")

    def __init__(self, exchange: Exchange | ForeignExchange, total: Limit, idle_s: float) -> None:
        """Raises ProtocolFailure for an encoding that we can't undo."""
        headers = exchange.headers or {}
        self.status = exchange.status
        self.headers = headers
        self.content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        self._exchange = exchange
        self._total = total
        self._idle_s = idle_s
        self._inflater = _inflater(headers[b"content-encoding"]) if b"content-encoding" in headers else None

    async def read(self, limit: Limit | None = None) -> bytes:
        """The next bytes, b"" at the end. A wait has its `limit`, by default that of a pause, and the answer's."""
        exchange, inflater = self._exchange, self._inflater
        while True:
            while not exchange.pieces and not exchange.complete:
                await self._wait(limit)
            piece = exchange.take()
            if inflater is None:
                return piece
            if inflated := _inflated(inflater, piece):
                return inflated
            if not piece:
                return b""

    async def whole(self, max_bytes: int) -> bytes:
        if self._exchange.complete and self._inflater is None:
            body = self._exchange.take()
        else:
            body = await self._gather(max_bytes)
        if len(body) > max_bytes:
            raise ProtocolFailure(f"the answer is longer than {max_bytes} bytes")
        return body

    def linger(self) -> None:
        """All that matters is here: the rest may run out so that the connection can be used again."""
        self._exchange.linger()

    async def aclose(self) -> None:
        await self._exchange.aclose()

    async def _gather(self, max_bytes: int) -> bytes:
        """All of it, or the first bytes that are too many."""
        pieces: list[bytes] = []
        size = 0
        while size <= max_bytes and (piece := await self.read()):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    async def _wait(self, limit: Limit | None) -> None:
        total = self._total
        until = asyncio.get_running_loop().time() + self._idle_s if limit is None else limit.until
        try:
            await self._exchange.more(min(until, total.until))
        except TimeoutError as error:
            ended = min(limit or Limit(until, "idle", self._idle_s), total)
            raise TimeoutFailure(ended.phase, ended.seconds) from error
        except httpx.HTTPError as error:
            raise translate(error) from error


def _inflated(inflater: Inflater, piece: bytes) -> bytes:
    """b"" is a piece too: the end, which must not come too early."""
    if not piece and not inflater.finished:
        raise ProtocolFailure("the compressed answer is cut off")
    try:
        return inflater.feed(piece, MAX_INFLATED_PIECE) if piece else b""
    except httpx.DecodingError as error:
        raise translate(error) from error


def _inflater(coding: bytes) -> Inflater | None:
    name = coding.decode("latin-1").strip().lower()
    if name in ("", "identity"):
        return None
    try:
        return Inflater(name)
    except httpx.DecodingError as error:
        raise translate(error) from error
