"""A limit for what is awaited, as `asyncio.timeout` gives one, at a third of its cost: every request has several."""

import asyncio
from types import TracebackType


class TimeLimit:
    """`with TimeLimit(20): await ...` raises TimeoutError when the time is over, and cancels what is awaited.

    Only a cancellation of its own becomes a TimeoutError; any other one passes through.
    """

    expired = False
    _armed = True
    _handle: asyncio.TimerHandle | None = None

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.when = self._loop.time() + seconds  # by the event loop's clock

    def unarmed(self) -> "TimeLimit":
        """`with limit.unarmed():` has no end until `arm` is called within it: a timer costs as much as much else."""
        self._armed = False
        return self

    def arm(self) -> None:
        if self._handle is None:
            self._handle = self._loop.call_at(self.when, self._expire)

    def move_to(self, when: float) -> None:
        """Within the block, while it has not expired."""
        self.when = when
        self._disarm()
        self.arm()

    def __enter__(self) -> "TimeLimit":
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        if self._armed:
            self.arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disarm()
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expire(self) -> None:
        self.expired = True
        self._cancelling = self._task.cancelling()
        self._task.cancel()
