"""Notices a client that leaves, and stops the work done for it. Knows ASGI's receive channel and nothing else."""

import asyncio
from types import TracebackType
from typing import Any, Protocol, Self

from gateway.errors import ApiError, ClientClosedRequest

PATIENCE_S = 0.05  # most answers come sooner, and are then not watched for at all


class Register(Protocol):
    """Whoever wants to know which work is under way, and may have to stop it (`gateway.doors`)."""

    def enter(self, visitor: "Departure") -> None: ...

    def leave(self, visitor: "Departure") -> None: ...


class Departure:
    """While open, a disconnect cancels the task that opened it; the cancellation surfaces as ClientClosedRequest.
    `stop` does the same for any other reason.

    One small task for a request that takes its time, instead of racing each await against `receive`. A cancellation
    that comes from anywhere else (shutdown, a timeout) passes through untouched.
    """

    __slots__ = ("_receive", "_register", "_task", "_timer", "_watcher", "_why")

    def __init__(self, receive: Any, register: Register | None = None) -> None:
        self._receive = receive
        self._register = register
        self._why: ApiError | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._timer = loop.call_later(PATIENCE_S, self._begin)
        if self._register is not None:
            self._register.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._register is not None:
            self._register.leave(self)
        if self._why is not None and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise self._why from error

    def stop(self, why: ApiError) -> None:
        """Cancels the work; `why` is raised where it was opened. The first reason counts."""
        if self._why is None:
            self._why = why
            self._task.cancel()

    def _begin(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.stop(ClientClosedRequest("the client closed the connection"))
                return
