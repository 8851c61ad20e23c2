"""How many lines may be asked at once: as many as the config says, less those requests that somebody waits for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LOOK_AGAIN_S = 0.05  # who else comes and goes is not told to us


class IdleCapacity:
    """Shared by all batches of a process. One line may always run: a busy gateway gets on with its batches, too."""

    def __init__(self, concurrency: Callable[[], int], num_inside: Callable[[], int]) -> None:
        """`num_inside`: requests under way, those of batches among them."""
        self._concurrency = concurrency
        self._num_inside = num_inside
        self._num_lines = 0
        self._left = asyncio.Event()
        self._turn = asyncio.Lock()  # batches come to their places in the order in which they asked

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        async with self._turn:
            while not self._has_room():
                await self._wait()
            self._num_lines += 1
        try:
            yield
        finally:
            self._num_lines -= 1
            self._left.set()

    def _has_room(self) -> bool:
        others = max(0, self._num_inside() - self._num_lines)
        return self._num_lines < max(1, self._concurrency() - others)

    async def _wait(self) -> None:
        self._left.clear()
        try:
            async with asyncio.timeout(LOOK_AGAIN_S):
                await self._left.wait()
        except TimeoutError:
            pass
