"""Writes each passage into the books as it happens: attempts before they leave, the record before the last byte does.

Prices are applied here and nowhere else on a request's way; every sum is integer nano-dollars.
"""

from functools import partial
from typing import Any

from msgspec.structs import replace

from gateway.estimates import prompt_tokens
from gateway.ledger.ledger import Ledger
from gateway.ledger.prices import PriceBook
from gateway.ledger.progress import Mark
from gateway.ledger.records import AttemptRecord, RequestRecord, Status
from gateway.ledger.savings import NONE, Savings, compare
from gateway.passage import Passage
from gateway.telemetry.log import log_request
from gateway.telemetry.metrics import Metrics
from gateway.wire.inference import GENERATING
from gateway.wire.usage import Usage
from semcache.types import StoredAnswer


class Bookkeeper:
    def __init__(
        self,
        ledger: Ledger,
        prices: PriceBook,
        metrics: Metrics,
        baseline_model: str = "",
        local: frozenset[str] = frozenset(),
    ) -> None:
        """`local` names the backends that run in this process."""
        self.local = local
        self._ledger = ledger
        self._prices = prices
        self._metrics = metrics
        self.baseline_model = baseline_model  # for tenants without one of their own

    def attempt_opened(self, passage: Passage, attempt: AttemptRecord) -> None:
        """Noted with the least it may cost, should this process die before it is closed."""
        passage.num_attempts += 1
        least = Usage(prompt_tokens=prompt_tokens(passage.inference), estimated=True)
        opening = passage.opened = passage.opening()
        if passage.attempts:
            opening = replace(opening, attempts=tuple(passage.attempts))
        self._ledger.open_attempt(replace(attempt, usage=least), opening)

    def begin_stream(self, attempt: AttemptRecord) -> Mark | None:
        """Where the relay notes how many tokens have come, should this process die before the end."""
        return self._ledger.begin_stream(attempt.id)

    def end_stream(self, mark: Mark | None) -> None:
        self._ledger.end_stream(mark)

    def attempt_closed(self, passage: Passage, attempt: AttemptRecord) -> None:
        """Priced. What one of our own backends refused before any work is no call.

        A call that was cut off before it reported anything is charged its prompt: it may well have run.
        """
        if attempt.provider in self.local and 400 <= (attempt.http_status or 0) < 500:
            passage.num_attempts -= 1
            return
        if not attempt.usage.total_tokens and _may_have_run(attempt):
            least = replace(attempt.usage, prompt_tokens=prompt_tokens(passage.inference), estimated=True)
            attempt = replace(attempt, usage=least)
        cost = self._prices.price_at(attempt.model, attempt.provider).cost_nanousd(attempt.usage)
        if passage.batch is not None:
            cost = passage.batch.of(cost)
        passage.add(replace(attempt, cost_nanousd=cost))

    def correct(self, passage: Passage, usage: Usage) -> None:
        """Puts an estimate where the last attempt's backend reported no usage."""
        attempt = passage.take_back()
        usage = replace(usage, compute_us=attempt.usage.compute_us)
        self.attempt_closed(passage, replace(attempt, usage=usage))

    def settle(
        self, passage: Passage, *, status: Status = "ok", http_status: int = 200, error_code: str | None = None
    ) -> RequestRecord:
        """The request's one record, in the journal when this returns. Later calls return the same record."""
        if passage.record is not None:
            return passage.record
        answer = passage.lookup.answer
        told = self._served(passage, status) if answer is None else self._hit(passage, answer)
        record = replace(
            passage.opening(),
            **told,
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

    def _hit(self, passage: Passage, answer: StoredAnswer) -> dict[str, Any]:
        """Fields of the record. A hit uses no tokens and no dollars; it reports the stored answer's."""
        usage = Usage(
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            compute_us=answer.compute_us,
        )
        savings = self._compare(passage, answer.model, answer.provider, usage)
        return {
            "model": answer.model,
            "tier": answer.tier or None,
            "cache_entry": answer.entry_id,
            "usage": usage,
            "baseline_model": savings.baseline_model,
            "baseline_cost_nanousd": savings.baseline_cost_nanousd,
            "saved_by_cache_nanousd": savings.saved_by_cache_nanousd,
            "saved_by_routing_nanousd": savings.saved_by_routing_nanousd,
        }

    def _served(self, passage: Passage, status: Status) -> dict[str, Any]:
        """Fields of the record. Failed attempts are paid for too, and only a whole answer saves anything."""
        if not passage.attempts:
            return {}
        last = passage.attempts[-1]
        savings = self._compare(passage, last.model, last.provider, last.usage, last) if status == "ok" else NONE
        return {
            "model": last.model,
            "provider": last.provider,
            "usage": last.usage,
            "cost_nanousd": passage.cost_nanousd,
            "baseline_model": savings.baseline_model,
            "baseline_cost_nanousd": savings.baseline_cost_nanousd,
            "saved_by_routing_nanousd": savings.saved_by_routing_nanousd,
            "attempts": tuple(passage.attempts),
        }

    def _compare(
        self, passage: Passage, model: str, provider: str, usage: Usage, call: AttemptRecord | None = None
    ) -> Savings:
        """What generates text is compared with the tenant's baseline model; all else has no alternative.

        `call`: the one that was paid for the answer; None on a hit.
        """
        baseline = None
        if passage.inference.endpoint in GENERATING:
            baseline = passage.principal.tenant.baseline_model or self.baseline_model or None
        savings = compare(
            self._prices,
            model=model,
            provider=provider,
            usage=usage,
            baseline_model=baseline,
            hit=call is None,
            spent=call.cost_nanousd if call is not None and passage.batch is None else None,
        )
        return savings if passage.batch is None else savings.scaled(passage.batch.of)


class Observer:
    """Every call of a model goes into the books before it leaves and after it ended (`upstream.AttemptObserver`)."""

    __slots__ = ("attempt_closed", "attempt_opened")

    def __init__(self, passage: Passage, bookkeeper: Bookkeeper) -> None:
        self.attempt_opened = partial(bookkeeper.attempt_opened, passage)
        self.attempt_closed = partial(bookkeeper.attempt_closed, passage)


def _may_have_run(attempt: AttemptRecord) -> bool:
    """It left us and no answer says that it was refused."""
    code = attempt.error_code or ""
    if attempt.status == "cancelled":
        return code != "cancelled_unsent"
    return code == "protocol_error" or (code.startswith("timeout") and code != "timeout_connect")
