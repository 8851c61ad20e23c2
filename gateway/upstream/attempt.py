"""One call of one deployment: its record, its outcome, and what that says of the deployment's health."""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from gateway.errors import ApiError
from gateway.ids import new_id
from gateway.ledger.records import AttemptRecord, Status
from gateway.time_limit import TimeLimit
from gateway.upstream.deployment import AttemptObserver, Deployment, Served, milliseconds_since
from gateway.upstream.errors import ProtocolFailure, UpstreamFailure
from gateway.upstream.types import Dispatch, Outbound, Reply
from gateway.upstream.verdict import Failed, failure, judge
from gateway.wire.usage import Usage

log = logging.getLogger("tollhouse.upstream")


class Caller:
    """Makes the calls of one request, one after the other. `limit` is the deadline of them all."""

    _last: Deployment | None = None
    _dispatch: Dispatch  # of the last one

    def __init__(
        self, outbound_for: Callable[[Deployment], Outbound], observer: AttemptObserver, limit: TimeLimit
    ) -> None:
        self._outbound_for = outbound_for
        self._observer = observer
        self.limit = limit
        self._attempts: list[AttemptRecord] = []  # closed, but for the stream that is served
        self._faults: list[str] = []

    def summary(self) -> str:
        return "; ".join(self._faults) or "nothing yet"

    def as_it_came(self, reply: Reply) -> Served:
        """The last call's refusal, for the client to see."""
        assert self._last is not None
        attempts = tuple(self._attempts)
        return Served(reply, self._last, attempts[-1], attempts, time.perf_counter_ns())

    async def attempt(self, deployment: Deployment) -> Served | Failed:
        try:
            outbound = self._outbound_for(deployment)
            record = self._open(deployment, outbound)
        except BaseException:
            deployment.breaker.abandon()  # it may have been the probe
            raise
        self._last, self._dispatch = deployment, outbound.dispatch
        deployment.load.outstanding += 1
        self._heed_deadline(outbound)
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
            status, code = self._how_it_ended(error, outbound)
            self._faults.append(f"{_name(deployment)}: {code}")
            self._close(deployment, record, milliseconds_since(started_ns), status, error_code=code)
            if reply is not None:
                await reply.aclose()
            raise
        if failed is None:
            assert reply is not None
            return self._succeed(deployment, reply, record, started_ns, first_events)
        self._fail(deployment, record, started_ns, failed, stream=outbound.inference.stream)
        if reply is not None:
            await reply.aclose()
        return failed

    def _heed_deadline(self, outbound: Outbound) -> None:
        """A call that has to end before it, by its backend's own limit, needs no second timer."""
        own = outbound.timeouts
        if own is None or asyncio.get_running_loop().time() + own.total_s >= self.limit.when:
            self.limit.arm()

    def _how_it_ended(self, error: BaseException, outbound: Outbound) -> tuple[Status, str]:
        """What never left us is named so: it has cost nothing."""
        has_left = outbound.dispatch.has_left
        if not isinstance(error, asyncio.CancelledError):
            return "error", "internal_error"
        if self.limit.expired:
            return "error", "timeout_deadline" if has_left else "timeout_connect"
        return "cancelled", "cancelled" if has_left else "cancelled_unsent"

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
        deployment: Deployment,
        record: AttemptRecord,
        latency_ms: float,
        status: Status,
        http_status: int | None = None,
        error_code: str | None = None,
        usage: Usage | None = None,
    ) -> AttemptRecord:
        deployment.load.outstanding -= 1
        record = msgspec.structs.replace(
            record,
            status=status,
            http_status=http_status,
            error_code=error_code,
            usage=self._dispatch.metered(usage or record.usage),
            latency_ms=latency_ms,
        )
        self._attempts.append(record)
        self._observer.attempt_closed(record)
        return record

    def _succeed(
        self, deployment: Deployment, reply: Reply, record: AttemptRecord, started_ns: int, first_events: list[bytes]
    ) -> Served:
        """A stream's call is still under way: `Served.finish` ends it."""
        status, took_ms = reply.status, milliseconds_since(started_ns)
        deployment.breaker.success()
        if status >= 300:
            record = self._close(deployment, record, took_ms, "error", status, f"http_{status}")
        elif reply.events is None:
            deployment.load.observe(took_ms / 1e3, stream=False)
            record = self._close(deployment, record, took_ms, "ok", status, None, reply.content.usage)
        else:
            deployment.load.observe(took_ms / 1e3, stream=True)
            record = msgspec.structs.replace(record, http_status=status, ttft_ms=took_ms)
            self._attempts.append(record)
        return Served(reply, deployment, record, tuple(self._attempts), started_ns, first_events, self._dispatch)

    def _fail(
        self, deployment: Deployment, record: AttemptRecord, started_ns: int, failed: Failed, *, stream: bool
    ) -> None:
        self._faults.append(f"{_name(deployment)}: {failed.code}")
        severity, outcome = (logging.INFO, "was refused") if failed.is_refusal else (logging.WARNING, "failed")
        name = _name(deployment)
        log.log(
            severity, "attempt %d of %s at %s %s: %s", record.index, record.request_id, name, outcome, failed.detail
        )
        if failed.blameless:
            deployment.breaker.abandon()
        elif failed.retry_after_s:
            deployment.breaker.rest(failed.retry_after_s)
        else:
            deployment.breaker.failure()
        took_ms = milliseconds_since(started_ns)
        if failed.timed_out:
            deployment.load.observe(took_ms / 1e3, stream=stream)
        self._close(deployment, record, took_ms, "error", failed.http_status, failed.code, failed.usage)


async def _first_token(reply: Reply) -> list[bytes]:
    """All payloads up to and with those that brought the first token."""
    assert reply.events is not None
    events: list[bytes] = []
    async for payloads in reply.events:
        events += payloads
        if reply.begins_with_token or not all(map(reply.format.is_prelude, payloads)):
            return events
    if not events:
        raise ProtocolFailure("the event stream was empty")
    return events


def _name(deployment: Deployment) -> str:
    return f"{deployment.model} ({deployment.backend.name})"
