"""The books, as the pipeline sees them: two calls that return at once, and a database that follows.

When `settle` has returned, the record survives this process. It is in SQL moments later.
"""

from pathlib import Path

import msgspec

from gateway.ledger.entries import encode_opened, encode_settled
from gateway.ledger.journal import Journal
from gateway.ledger.prices import PriceBook
from gateway.ledger.progress import Mark, Progress
from gateway.ledger.records import AttemptRecord, RequestRecord
from gateway.ledger.writer import Writer
from gateway.store.database import Database


class LedgerStats(msgspec.Struct, frozen=True, kw_only=True):
    num_queued: int  # settled and not in SQL yet, in memory
    num_written: int
    num_refused: int  # put aside in journal/refused.jsonl
    num_segments: int
    overflowed: bool  # more records wait in the journal than fit in memory
    journal_error: str | None
    database_error: str | None


class Ledger:
    """`start` before use, `aclose` after. `fsync_ms` = 0 forces every record to disk before the call returns."""

    def __init__(
        self,
        database: Database,
        home: Path,
        fsync_ms: int = 50,
        *,
        prices: PriceBook | None = None,
        max_queue: int = 10_000,
        segment_bytes: int = 32 << 20,
    ) -> None:
        self._database = database
        self._folder = home / "journal"
        self._fsync_ms = fsync_ms
        self._prices = prices
        self._max_queue = max_queue
        self._segment_bytes = segment_bytes

    async def start(self) -> None:
        """Opens the journal and begins to drain, first what dead gateways left. Raises LedgerError."""
        self._journal = Journal(self._folder, self._fsync_ms, self._segment_bytes)
        self._progress = Progress(self._journal.folder)
        self._writer = Writer(self._database, self._folder, self._journal, self._price, self._max_queue)
        self._writer.start()

    def open_attempt(self, record: AttemptRecord, request: RequestRecord) -> None:
        """Before a backend is called. Its usage, as far as known (the prompt's estimate), is booked if we die now."""
        self._journal.append_opened(request.id, encode_opened(record, request))

    def begin_stream(self, attempt_id: str) -> Mark | None:
        """Its attempt is open, and what it brings is noted in the mark; None where there is no room for one."""
        return self._progress.begin(attempt_id)

    def end_stream(self, mark: Mark | None) -> None:
        """Its request is settled."""
        if mark is not None:
            self._progress.end(mark)

    def settle(self, record: RequestRecord) -> None:
        """Once a request, with all its attempts, before the client sees the last byte."""
        self._writer.put(record, self._journal.append_settled(record.id, encode_settled(record)))

    async def drain(self) -> None:
        """Returns once all that was settled is in SQL, however long that takes."""
        await self._writer.drain()

    async def aclose(self, timeout_s: float = 5.0) -> None:
        """Drains as far as it gets in that time; the rest waits in the journal for the next start."""
        await self._writer.aclose(timeout_s)
        self._progress.close()
        self._journal.close()

    def stats(self) -> LedgerStats:
        return LedgerStats(
            num_queued=self._writer.num_queued,
            num_written=self._writer.num_written,
            num_refused=self._writer.num_refused,
            num_segments=self._journal.num_segments,
            overflowed=self._writer.overflowed,
            journal_error=self._journal.error,
            database_error=self._writer.error,
        )

    def _price(self, attempt: AttemptRecord) -> int:
        if self._prices is None:
            return attempt.cost_nanousd
        return self._prices.cost_nanousd(attempt.model, attempt.usage, at=attempt.started_at, provider=attempt.provider)
