"""Writes each passage into the books as it happens: attempts before they are dispatched, the record before the last byte.

Prices are applied here and nowhere else; every sum is integer nano-dollars.
"""

from msgspec.structs import replace

from gateway.config import Config
from gateway.ledger.ledger import Ledger
from gateway.ledger.prices import PriceBook
from gateway.ledger.records import AttemptRecord, RequestRecord, Status
from gateway.passage import Passage
from gateway.telemetry.log import log_request
from gateway.telemetry.metrics import Metrics
from gateway.wire.usage import Usage
from semcache.types import StoredAnswer


class Bookkeeper:
    def __init__(self, ledger: Ledger, prices: PriceBook, metrics: Metrics, config: Config) -> None:
        self._ledger = ledger
        self._prices = prices
        self._metrics = metrics
        self.config = config

    def attempt_opened(self, passage: Passage, attempt: AttemptRecord) -> None:
        self._ledger.open_attempt(attempt, passage.opening())

    def attempt_closed(self, passage: Passage, attempt: AttemptRecord) -> AttemptRecord:
        """Prices an attempt and keeps it with its request."""
        priced = replace(attempt, cost_nanousd=self._prices.cost_nanousd(attempt.model, attempt.usage))
        passage.attempts.append(priced)
        return priced

    def settle(
        self,
        passage: Passage,
        *,
        status: Status = "ok",
        http_status: int = 200,
        error_code: str | None = None,
    ) -> RequestRecord:
        """The request's one record, in the journal when this returns. Called once; later calls return the same record."""
        if passage.record is not None:
            return passage.record
        answer = passage.lookup.answer
        if answer is not None:
            record = self._hit(passage, answer)
        else:
            record = self._served(passage)
        record = replace(
            record,
            status=status,
            http_status=http_status,
            error_code=error_code,
            ttft_ms=passage.ttft_ms,
            latency_ms=passage.latency_ms,
            decision=passage.decision_record(),
        )
        passage.record = record
        self._ledger.settle(record)
        self._metrics.observe(record)
        log_request(record)
        return record

    def _hit(self, passage: Passage, answer: StoredAnswer) -> RequestRecord:
        """A hit uses no tokens and no dollars: what it saved is what the stored answer's model would have cost."""
        usage = Usage(prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)
        baseline_model, baseline_cost = self._baseline(passage, usage)
        would_have_cost = self._prices.cost_nanousd(answer.model, usage)
        return replace(
            passage.opening(),
            model=answer.model,
            tier=answer.tier or None,
            provider=None,
            cache_entry=answer.entry_id,
            usage=usage,
            baseline_model=baseline_model,
            baseline_cost_nanousd=baseline_cost,
            saved_by_cache_nanousd=would_have_cost,
            saved_by_routing_nanousd=0 if baseline_cost is None else baseline_cost - would_have_cost,
        )

    def _served(self, passage: Passage) -> RequestRecord:
        attempts = tuple(passage.attempts)
        last = attempts[-1] if attempts else None
        if last is None:
            return passage.opening()
        cost = sum(attempt.cost_nanousd for attempt in attempts)
        baseline_model, baseline_cost = self._baseline(passage, last.usage)
        saved = 0 if baseline_cost is None or last.status == "error" else baseline_cost - last.cost_nanousd
        return replace(
            passage.opening(),
            model=last.model,
            provider=last.provider,
            usage=last.usage,
            cost_nanousd=cost,
            baseline_model=baseline_model,
            baseline_cost_nanousd=baseline_cost,
            saved_by_routing_nanousd=saved,
            attempts=attempts,
        )

    def _baseline(self, passage: Passage, usage: Usage) -> tuple[str | None, int | None]:
        """Chat is compared with the tenant's baseline model; an embedding has no alternative to compare with."""
        name = passage.principal.tenant.baseline_model or self.config.baseline_model
        if not name or passage.inference.endpoint == "embeddings":
            return None, None
        return name, self._prices.cost_nanousd(name, usage)
