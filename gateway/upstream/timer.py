"""One timer for all the phases of an answer. Moving its end is cheap: the event loop is asked again when it rings."""

import asyncio
from types import TracebackType

from gateway.upstream.errors import Phase, TimeoutFailure


class PhaseTimer:
    """Limits how long we wait, and only while we wait: `with timer.limit("idle", 60): await ...` raises TimeoutFailure.

    Works as asyncio.timeout does (the waiting task is cancelled, and only our own cancellation is translated), without
    a new timer for every piece of a stream.
    """

    __slots__ = (
        "_cancelling",
        "_handle",
        "_loop",
        "_phase",
        "_rings_at",
        "_rung",
        "_seconds",
        "_started",
        "_task",
        "_total_s",
        "_when",
    )

    def __init__(self, total_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._total_s = total_s
        self._task: asyncio.Task[object] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self._rung = False
        self._cancelling = 0
        self.limit("total", total_s)

    def limit(self, phase: Phase, seconds: float, *, from_start: bool = False) -> "PhaseTimer":
        """Limits the next wait, counted from now or from the timer's making; the total limit holds anyway."""
        start = self._started if from_start else self._loop.time()
        self._phase: Phase = phase
        self._seconds = seconds
        self._when = start + seconds
        if self._started + self._total_s < self._when:
            self._phase, self._seconds, self._when = "total", self._total_s, self._started + self._total_s
        return self

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._rung = False
        if self._handle is None or self._rings_at > self._when:
            self._arm()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        if self._rung and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutFailure(self._phase, self._seconds) from error

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        self.close()
        self._rings_at = self._when
        self._handle = self._loop.call_at(self._when, self._ring)

    def _ring(self) -> None:
        self._handle = None
        if self._task is None:
            return  # nobody waits now; the next wait arms it again
        if self._loop.time() + 0.001 < self._when:  # the end was moved; uvloop's clock has whole milliseconds
            self._arm()
            return
        self._rung = True
        self._task.cancel()
