"""One request against its candidates: retry, fall back, leave the broken ones alone, all under one deadline.

Nothing has reached the client while this runs, so every failure can still be mended; afterwards none is. Knows
backends, not HTTP.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence

import msgspec

from gateway.errors import ApiError, UpstreamError, UpstreamTimeout
from gateway.ids import new_id
from gateway.ledger.records import AttemptRecord, Status
from gateway.upstream.deployment import AttemptObserver, Deployment, Served, milliseconds_since
from gateway.upstream.errors import ProtocolFailure, UpstreamFailure
from gateway.upstream.first_token import is_prelude
from gateway.upstream.types import Outbound, Reply
from gateway.upstream.verdict import Failed, failure, judge
from gateway.wire.usage import Usage, usage_of

__all__ = ["AttemptObserver", "Deployment", "Served", "run"]

FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 1.0
MAX_RETRY_AFTER_S = 2.0  # whoever asks for a longer wait is not waited for
USUAL_TOTAL_S = 600.0
MARGIN_S = 1.0  # a backend's own limit comes first: it says more, and counts against the deployment

log = logging.getLogger("tollhouse.upstream")


async def run(
    deployments: Sequence[Deployment],
    outbound_for: Callable[[Deployment], Outbound],
    observer: AttemptObserver,
    *,
    deadline_s: float | None = None,
) -> Served:
    """Tries the candidates in order and returns the first answer, at a stream's first token.

    By default all together have as long as the most patient of them, at least ten minutes.
    Raises UpstreamError, or UpstreamTimeout if the last one took too long, or the ApiError of a backend of our own that
    was the last to refuse. Cancelling it cancels the upstream request.
    """
    assert deployments
    if deadline_s is None:
        deadline_s = max(USUAL_TOTAL_S, *(each.total_timeout_s or 0.0 for each in deployments)) + MARGIN_S
    limit = asyncio.timeout(deadline_s)
    attempts = _Attempts(outbound_for, observer, limit)
    try:
        async with limit:
            return await attempts.serve(deployments)
    except TimeoutError:
        if not limit.expired():
            raise
        raise UpstreamTimeout(f"No answer within {deadline_s:g} s. Tried: {attempts.summary()}") from None


class _Attempts:
    def __init__(
        self, outbound_for: Callable[[Deployment], Outbound], observer: AttemptObserver, limit: asyncio.Timeout
    ) -> None:
        self._outbound_for = outbound_for
        self._observer = observer
        self._limit = limit
        self._attempts: list[AttemptRecord] = []  # closed, but for the stream that is served
        self._faults: list[str] = []

    def summary(self) -> str:
        return "; ".join(self._faults) or "nothing yet"

    async def serve(self, deployments: Sequence[Deployment]) -> Served:
        candidates = [deployment for deployment in deployments if not deployment.breaker.is_open]
        last_resort = not candidates
        if last_resort:  # a sure refusal helps nobody: the one that may be back soonest is tried
            candidates = [min(deployments, key=lambda deployment: deployment.breaker.open_until)]
        failed: Failed | None = None
        for index, deployment in enumerate(candidates):
            if not deployment.breaker.allow() and not last_resort and index + 1 < len(candidates):
                continue  # another request's failure opened it meanwhile
            outcome = await self._try(deployment, is_last=index + 1 == len(candidates))
            if isinstance(outcome, Served):
                return outcome
            failed = outcome
        assert failed is not None
        if failed.error is not None:
            raise failed.error
        kind = UpstreamTimeout if failed.timed_out else UpstreamError
        raise kind(f"No candidate could answer. Tried: {self.summary()}")

    async def _try(self, deployment: Deployment, is_last: bool) -> Served | Failed:
        """One candidate with its retries."""
        for retry in range(deployment.max_retries + 1):
            outcome = await self._attempt(deployment)
            if isinstance(outcome, Served):
                return outcome
            wait_s = max(_backoff(retry), outcome.retry_after_s or 0.0)
            out_of_tries = retry == deployment.max_retries or deployment.breaker.is_open
            if out_of_tries or not outcome.retryable or (outcome.retry_after_s or 0.0) > MAX_RETRY_AFTER_S:
                break
            await asyncio.sleep(wait_s)
        if outcome.reply is not None and is_last:
            return Served(outcome.reply, deployment, self._attempts[-1], tuple(self._attempts), time.perf_counter_ns())
        return outcome

    async def _attempt(self, deployment: Deployment) -> Served | Failed:
        try:
            outbound = self._outbound_for(deployment)
            record = self._open(deployment, outbound)
        except BaseException:
            deployment.breaker.abandon()  # it may have been the probe
            raise
        started_ns = time.perf_counter_ns()
        reply: Reply | None = None
        first_events: list[bytes] = []
        try:
            reply = await deployment.backend.send(outbound)
            if reply.events is not None:
                first_events = await _first_token(reply)
            failed = judge(reply, first_events)
        except (UpstreamFailure, ApiError) as error:
            failed = failure(error)
        except BaseException as error:
            deployment.breaker.abandon()
            status, code = self._how_it_ended(error)
            self._faults.append(f"{_name(deployment)}: {code}")
            self._close(record, started_ns, status, error_code=code)
            if reply is not None:
                await reply.aclose()
            raise
        if failed is None:
            assert reply is not None
            return self._succeed(deployment, reply, record, started_ns, first_events)
        self._fail(deployment, record, started_ns, failed)
        if reply is not None:
            await reply.aclose()
        return failed

    def _how_it_ended(self, error: BaseException) -> tuple[Status, str]:
        if not isinstance(error, asyncio.CancelledError):
            return "error", "internal_error"
        return ("error", "timeout_deadline") if self._limit.expired() else ("cancelled", "cancelled")

    def _open(self, deployment: Deployment, outbound: Outbound) -> AttemptRecord:
        record = AttemptRecord(
            id=new_id(),
            request_id=outbound.request_id,
            index=len(self._attempts),
            model=deployment.model,
            provider=deployment.backend.name,
            upstream_model=outbound.upstream_model,
            started_at=time.time(),
        )
        self._observer.attempt_opened(record)
        return record

    def _close(
        self,
        record: AttemptRecord,
        started_ns: int,
        status: Status,
        *,
        http_status: int | None = None,
        error_code: str | None = None,
        usage: Usage | None = None,
    ) -> AttemptRecord:
        record = msgspec.structs.replace(
            record,
            status=status,
            http_status=http_status,
            error_code=error_code,
            usage=usage or record.usage,
            latency_ms=milliseconds_since(started_ns),
        )
        self._attempts.append(record)
        self._observer.attempt_closed(record)
        return record

    def _succeed(
        self, deployment: Deployment, reply: Reply, record: AttemptRecord, started_ns: int, first_events: list[bytes]
    ) -> Served:
        deployment.breaker.success()
        status = reply.status
        if reply.events is not None:
            record = msgspec.structs.replace(record, http_status=status, ttft_ms=milliseconds_since(started_ns))
            self._attempts.append(record)
        elif status < 300:
            record = self._close(record, started_ns, "ok", http_status=status, usage=usage_of(reply.body or b""))
        else:
            record = self._close(record, started_ns, "error", http_status=status, error_code=f"http_{status}")
        return Served(reply, deployment, record, tuple(self._attempts), started_ns, first_events)

    def _fail(self, deployment: Deployment, record: AttemptRecord, started_ns: int, failed: Failed) -> None:
        self._faults.append(f"{_name(deployment)}: {failed.code}")
        severity, outcome = (logging.INFO, "was refused") if failed.is_refusal else (logging.WARNING, "failed")
        name = _name(deployment)
        log.log(
            severity, "attempt %d of %s at %s %s: %s", record.index, record.request_id, name, outcome, failed.detail
        )
        if failed.blameless:
            deployment.breaker.abandon()
        elif failed.http_status == 429 and (failed.retry_after_s or 0.0) > MAX_RETRY_AFTER_S:
            deployment.breaker.rest(failed.retry_after_s or 0.0)
        else:
            deployment.breaker.failure()
        self._close(record, started_ns, "error", http_status=failed.http_status, error_code=failed.code)


async def _first_token(reply: Reply) -> list[bytes]:
    """All payloads up to and with those that brought the first token."""
    assert reply.events is not None
    events: list[bytes] = []
    async for payloads in reply.events:
        events += payloads
        if not all(map(is_prelude, payloads)):
            return events
    if not events:
        raise ProtocolFailure("the event stream was empty")
    return events


def _backoff(retry: int) -> float:
    """Doubling, with jitter so that retries of many requests spread out."""
    longest: float = min(FIRST_BACKOFF_S * 2**retry, MAX_BACKOFF_S)
    return longest * random.uniform(0.5, 1.0)


def _name(deployment: Deployment) -> str:
    return f"{deployment.model} ({deployment.backend.name})"
