"""Notices a client that leaves, and stops the work done for it. Knows ASGI's receive channel and nothing else."""

import asyncio
from types import TracebackType
from typing import Any, Self

from gateway.errors import ClientClosedRequest


class Departure:
    """While open, a disconnect cancels the task that opened it; the cancellation surfaces as ClientClosedRequest.

    One small task a request, instead of racing each await against `receive`. A cancellation that comes from anywhere
    else (shutdown, a timeout) passes through untouched.
    """

    __slots__ = ("_left", "_receive", "_task", "_watcher")

    def __init__(self, receive: Any) -> None:
        self._receive = receive
        self._left = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._watcher = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watcher.cancel()
        if self._left and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise ClientClosedRequest("the client closed the connection") from error

    async def _watch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._left = True
                self._task.cancel()
                return
