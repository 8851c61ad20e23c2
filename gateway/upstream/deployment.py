"""A model at a provider or in the bundled engine, and the answer that one of them gave."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from gateway.ledger.records import AttemptRecord, Status
from gateway.upstream.breaker import Breaker
from gateway.upstream.load import Load
from gateway.upstream.types import Backend, Dispatch, Reply, Timeouts
from gateway.wire.usage import Usage


@dataclass(frozen=True, slots=True, eq=False)
class Deployment:
    model: str  # our name
    backend: Backend
    upstream_model: str  # "": as the client wrote it, for a glob
    breaker: Breaker = field(default_factory=Breaker)
    max_retries: int = 0
    timeouts: Timeouts | None = None  # of a model at a provider
    weight: float = 1.0
    load: Load = field(default_factory=Load)
    check: Callable[[], Awaitable[None]] | None = None  # is it well? Free of charge; raises UpstreamFailure


class AttemptObserver(Protocol):
    """Is told of every call before it leaves and after it ended; the journal, metrics and prices hang here."""

    def attempt_opened(self, record: AttemptRecord) -> None: ...

    def attempt_closed(self, record: AttemptRecord) -> None: ...


@dataclass(slots=True)
class Served:
    """An answer for the client: a success, or a refusal that passes as it came (see `reply.status`).

    The attempt behind a stream is still open: whoever relays it calls `finish` once, at its end, and tells the
    observer. All other attempts are closed already.
    """

    reply: Reply
    deployment: Deployment
    record: AttemptRecord
    attempts: tuple[AttemptRecord, ...]  # all of the request, this one last
    started_ns: int  # perf_counter_ns at the dispatch of this attempt
    first_events: list[bytes] = field(default_factory=list)
    dispatch: Dispatch = field(default_factory=Dispatch)

    @property
    def is_stream(self) -> bool:
        return self.reply.events is not None

    def finish(
        self, status: Status = "ok", *, usage: Usage | None = None, error_code: str | None = None
    ) -> AttemptRecord:
        """The closed record of a stream; a failure counts against the deployment. Call the observer with it."""
        assert self.is_stream, "an answer without events was closed when it came"
        self.deployment.load.outstanding -= 1
        if status == "error":
            self.deployment.breaker.failure()
        self.record = msgspec.structs.replace(
            self.record,
            status=status,
            usage=self.dispatch.metered(usage or self.record.usage),
            error_code=error_code,
            latency_ms=milliseconds_since(self.started_ns),
        )
        self.attempts = (*self.attempts[:-1], self.record)
        return self.record


def milliseconds_since(started_ns: int) -> float:
    return (time.perf_counter_ns() - started_ns) / 1e6
