"""A stream on its way to the client: bytes out as they come, usage tallied, a failure told in the stream itself.

Nothing is buffered but what the cache will keep. However the stream ends (done, broken, client gone), the books are
settled before the last byte leaves, exactly once.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from gateway.errors import ApiError, ClientClosedRequest, InternalError, UpstreamError
from gateway.headers import settle_up_comment
from gateway.ledger.records import RequestRecord, Status
from gateway.passage import Passage
from gateway.upstream.errors import ProtocolFailure, UpstreamFailure
from gateway.upstream.types import Reply
from gateway.wire.sse import DONE, frame
from gateway.wire.stream import StreamReader

log = logging.getLogger("tollhouse.relay")

Settle = Callable[[Status, int, str | None], RequestRecord]  # status, http_status, error_code


class Relay:
    """Relays one reply. `settle` writes the books; `keep` offers a complete answer to the cache."""

    def __init__(
        self,
        passage: Passage,
        reply: Reply,
        first: list[bytes],
        reader: StreamReader,
        settle: Settle,
        keep: Callable[[StreamReader, RequestRecord], Awaitable[None]],
    ) -> None:
        self._passage = passage
        self._reply = reply
        self._first = first
        self._reader = reader
        self._settle = settle
        self._keep = keep

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            async for payloads in self._payloads():
                if piece := self._pass_on(payloads):
                    self._passage.note_first_token()
                    yield piece
            if not self._reader.finished:
                raise ProtocolFailure("the upstream's stream ended before the answer did")
            record = self._settle("ok", 200, None)
            await self._keep(self._reader, record)
            yield settle_up_comment(record) + frame(DONE)
        except (asyncio.CancelledError, GeneratorExit):
            self._settle("cancelled", ClientClosedRequest.status, ClientClosedRequest.code)
            raise
        except Exception as error:
            yield self._broken(error)
        finally:
            await asyncio.shield(self._reply.aclose())

    async def _payloads(self) -> AsyncIterator[list[bytes]]:
        """All payloads up to [DONE], those already read first."""
        rest = self._reply.events
        assert rest is not None
        batch: list[bytes] | None = self._first
        while batch is not None:
            if DONE in batch:
                yield batch[: batch.index(DONE)]
                return
            yield batch
            batch = await anext(rest, None)

    def _pass_on(self, payloads: list[bytes]) -> bytes:
        kept = (self._reader.feed(payload) for payload in payloads)
        return b"".join([frame(payload) for payload in kept if payload is not None])

    def _broken(self, error: Exception) -> bytes:
        """An in-band error event, and no [DONE]: a broken answer is never presented as finished."""
        if isinstance(error, ApiError):
            told = error
        elif isinstance(error, UpstreamFailure):
            told = UpstreamError(f"the upstream broke off in mid-answer: {error}", code=error.code)
        else:
            log.exception("request %s: a stream failed inside the gateway", self._passage.id, exc_info=error)
            told = InternalError("the gateway failed in mid-answer")
        self._settle("error", told.status, told.code)
        return frame(told.encode())
