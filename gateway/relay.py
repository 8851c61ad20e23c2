"""A stream on its way to the client: bytes out as they come, usage tallied, a failure told in the stream itself.

Nothing is buffered but what the cache will keep. However the stream ends (done, broken, client gone), the books are
settled before the last byte leaves, exactly once.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator

from msgspec.structs import replace

from gateway.answer import Last
from gateway.errors import ApiError, ClientClosedRequest, InternalError, UpstreamError
from gateway.estimates import usage_so_far
from gateway.headers import settle_up_comment
from gateway.house import House
from gateway.ledger.records import RequestRecord, Status
from gateway.passage import Passage
from gateway.recall import keep, may_keep
from gateway.upstream.attempts import Served
from gateway.upstream.errors import ProtocolFailure, UpstreamFailure
from gateway.wire.sse import DONE
from gateway.wire.usage import Usage

log = logging.getLogger("tollhouse.relay")


UPSTREAM_STREAM_ERROR = "upstream_stream_error"
MAX_COLLECTED_BYTES = 4 * 2**20  # of a stream's payloads; a stored answer is a fraction of them


class Relay:
    def __init__(self, passage: Passage, served: Served, house: House) -> None:
        self._passage = passage
        self._served = served
        self._house = house
        self._num_bytes = 0
        self._mark = house.bookkeeper.begin_stream(served.record)
        self._reader = served.reply.format.reader(passage.inference, collect=may_keep(passage))

    async def events(self) -> AsyncGenerator[bytes, None]:
        reader = self._reader
        try:
            async for payloads in self._payloads():
                self._keep_bounded(payloads)
                if piece := self._passage.voice.events(reader.feed(payloads)):
                    self._passage.note_first_token()
                    if self._mark is not None:
                        self._mark.note(reader.num_deltas)
                    yield piece
            if reader.error is not None:
                self._settle("error", UpstreamError.status, UPSTREAM_STREAM_ERROR)
            elif reader.done or reader.finished:
                record = self._settle("ok", 200, None)
                await self._settle_ticket()  # at once: a sum of the books taken in between would count it twice
                await self._keep(record)
                yield Last(settle_up_comment(record) + self._passage.voice.end())
            else:
                raise ProtocolFailure("the stream ended before the answer did")
        except Exception as error:
            if reader.error is None:
                yield Last(self.broken(error))
            else:  # the client has seen the upstream's own words for it
                self._settle("error", UpstreamError.status, UPSTREAM_STREAM_ERROR)

    async def close(self) -> None:
        """However it ended, begun or not: whoever left before the end is booked, and everything held is let go."""
        self._settle("cancelled", ClientClosedRequest.status, ClientClosedRequest.code)
        try:
            await self._served.reply.aclose()
        finally:
            await self._settle_ticket()

    async def _payloads(self) -> AsyncIterator[list[bytes]]:
        """What `attempts.run` had to read already, then the rest. [DONE] is held back: the books come first."""
        events = self._served.reply.events
        assert events is not None
        batch: list[bytes] | None = self._served.first_events
        while batch is not None:
            if DONE in batch:
                self._reader.done = True
                yield batch[: batch.index(DONE)]
                return
            yield batch
            batch = await anext(events, None)

    def _keep_bounded(self, payloads: list[bytes]) -> None:
        """What outgrows the cache is no longer collected for it."""
        self._num_bytes += sum(map(len, payloads))
        if self._num_bytes > MAX_COLLECTED_BYTES:
            self._reader.stop_collecting()

    async def _keep(self, record: RequestRecord) -> None:
        if not self._reader.payloads:
            return
        body = self._served.reply.format.assemble(self._reader.payloads, self._passage.inference.num_choices)
        if body is not None:
            await keep(self._passage, self._house, body, record)

    def broken(self, error: Exception) -> bytes:
        """An in-band error event, and no [DONE]: a broken answer is never presented as finished."""
        if isinstance(error, ApiError):
            told = error
        elif isinstance(error, UpstreamFailure):
            told = UpstreamError(f"The upstream broke off in mid-answer: {error}", code=error.code)
        else:
            log.exception("request %s: a stream failed inside the gateway", self._passage.id, exc_info=error)
            told = InternalError("The gateway failed in mid-answer.")
        self._settle("error", told.status, told.code)
        return self._passage.voice.broken(told)

    def _settle(self, status: Status, http_status: int, error_code: str | None) -> RequestRecord:
        """Closes the attempt and writes the record; what no upstream counted is counted by what passed."""
        passage, bookkeeper = self._passage, self._house.bookkeeper
        if passage.record is None:
            usage = self._usage(complete=status == "ok")
            attempt = self._served.finish(status, usage=usage, error_code=error_code)
            bookkeeper.attempt_closed(passage, attempt)
        record = bookkeeper.settle(passage, status=status, http_status=http_status, error_code=error_code)
        mark, self._mark = self._mark, None
        bookkeeper.end_stream(mark)
        return record

    async def _settle_ticket(self) -> None:
        await self._passage.ticket.settle(self._passage.tokens_used, self._passage.cost_nanousd)

    def _usage(self, *, complete: bool) -> Usage:
        """As reported, for a whole answer; else what was reported so far or what was seen, whichever is more."""
        reported = self._reader.usage
        if complete and reported is not None and reported.total_tokens:
            return reported
        seen = usage_so_far(self._passage.inference, self._reader.num_deltas)
        return seen if reported is None else replace(seen.maximum(reported), estimated=True)
