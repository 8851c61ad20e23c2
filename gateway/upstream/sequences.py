"""Several sequences of the bundled engine run side by side, their deltas gathered step by step. Knows no OpenAI."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import cast

from engine.types import Delta


class Sequences:
    """Begins to run with its creation, `at_once` at a time. `aclose` aborts what still runs, even more than once."""

    def __init__(self, generators: Sequence[AsyncIterator[Delta]], at_once: int) -> None:
        self._inbox: list[tuple[int, Delta]] = []
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None
        self._num_open = len(generators)
        self._places = asyncio.Semaphore(at_once)
        self._tasks = [asyncio.create_task(self._pump(*numbered)) for numbered in enumerate(generators)]

    async def next(self) -> list[tuple[int, Delta]]:
        """All that has arrived since the last call, as (sequence, delta); empty at the end.

        Raises what a sequence raised. The deltas of one step arrive in one turn of the event loop, and so in one list.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._inbox:
                batch, self._inbox = self._inbox, []
                return batch
            if not self._num_open:
                return []
            self._arrived.clear()
            await self._arrived.wait()

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pump(self, index: int, generator: AsyncIterator[Delta]) -> None:
        try:
            async with self._places, aclosing(cast(AsyncGenerator[Delta, None], generator)):
                async for delta in generator:
                    self._inbox.append((index, delta))
                    self._arrived.set()
        except Exception as error:
            self._error = self._error or error
        finally:
            self._num_open -= 1
            self._arrived.set()
