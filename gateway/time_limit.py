"""A limit for what is awaited, as `asyncio.timeout` gives one, at a third of its cost: every request has several."""

import asyncio
from types import TracebackType


class TimeLimit:
    """`with TimeLimit(20): await ...` raises TimeoutError when the time is over, and cancels what is awaited.

    Only a cancellation of its own becomes a TimeoutError; any other one passes through.
    """

    __slots__ = ("_cancelling", "_handle", "_loop", "_task", "expired", "when")

    _handle: asyncio.TimerHandle

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.when = self._loop.time() + seconds  # by the event loop's clock
        self.expired = False

    def move_to(self, when: float) -> None:
        """Within the block, while it has not expired."""
        self.when = when
        self._handle.cancel()
        self._handle = self._loop.call_at(when, self._expire)

    def __enter__(self) -> "TimeLimit":
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        self._handle = self._loop.call_at(self.when, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        self.expired = True
        self._cancelling = self._task.cancelling()
        self._task.cancel()
