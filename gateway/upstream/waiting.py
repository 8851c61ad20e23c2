"""A wait that somebody else ends, and that has an end of its own. One timer serves all the waits of an answer."""

import asyncio
import math

import msgspec

from gateway.upstream.errors import Phase

CLOCK_S = 0.001  # uvloop's clock has whole milliseconds


class Limit(msgspec.Struct, frozen=True, order=True, gc=False):
    """When a wait ends, and what it is then told to have been. The least of several comes first."""

    until: float  # by the event loop's clock
    phase: Phase
    seconds: float


class Waiting:
    """`await wait(until)` returns once woken, and raises TimeoutError at its end: nothing is cancelled for that.

    Moving the end from one wait to the next is cheap: the timer looks only when it rings, and rings late at most where
    nobody waits.
    """

    _waiter: asyncio.Future[bool] | None = None  # True: woken; False: too late
    _until = math.inf
    _timer: asyncio.TimerHandle | None = None
    _rings_at = math.inf

    async def wait(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        self._until = until
        if until < self._rings_at:
            self._arm(loop)
        self._waiter = loop.create_future()
        if not await self._waiter:
            raise TimeoutError

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def end(self) -> None:
        """Nobody will wait any more; whoever does is woken."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._rings_at = None, math.inf
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self._until
        self._timer = loop.call_at(self._until, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        if self._waiter is None or self._waiter.done():
            return  # the next wait arms it again
        loop = self._waiter.get_loop()
        if loop.time() + CLOCK_S < self._until:
            self._arm(loop)  # the end was moved
        else:
            self._waiter.set_result(False)
