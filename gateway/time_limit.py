"""A limit for what is awaited, as `asyncio.timeout` gives one, at a third of its cost: every request has several."""

import asyncio
from types import TracebackType


class TimeLimit:
    """`with TimeLimit(20): await ...` raises TimeoutError when the time is over, and cancels what is awaited.

    Only a cancellation of its own becomes a TimeoutError; any other one passes through.
    """

    __slots__ = ("_cancelling", "_expired", "_handle", "_loop", "_task", "_when")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._when = self._loop.time() + seconds
        self._handle: asyncio.TimerHandle | None = None
        self._expired = False

    @property
    def when(self) -> float:
        """By the event loop's clock."""
        return self._when

    @property
    def expired(self) -> bool:
        return self._expired

    def move_to(self, when: float) -> None:
        """Within the block, while it has not expired."""
        self._when = when
        self._disarm()
        self._handle = self._loop.call_at(when, self._expire)

    def __enter__(self) -> "TimeLimit":
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._handle = self._loop.call_at(self._when, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disarm()
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()
