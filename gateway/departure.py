"""Notices a client that leaves, and stops the work done for it. Knows ASGI's receive channel and nothing else."""

import asyncio
from types import TracebackType
from typing import Any, Self

from gateway.errors import ClientClosedRequest

PATIENCE_S = 0.05  # most answers come sooner, and are then not watched for at all


class Departure:
    """While open, a disconnect cancels the task that opened it; the cancellation surfaces as ClientClosedRequest.

    One small task for a request that takes its time, instead of racing each await against `receive`. A cancellation
    that comes from anywhere else (shutdown, a timeout) passes through untouched.
    """

    __slots__ = ("_left", "_receive", "_task", "_timer", "_watcher")

    def __init__(self, receive: Any) -> None:
        self._receive = receive
        self._left = False
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._left and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise ClientClosedRequest("the client closed the connection") from error

    def _begin(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._left = True
                self._task.cancel()
                return
