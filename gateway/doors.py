"""Who is inside: a bound on how many requests run at once, and an orderly way to have them all leave."""

import asyncio

from gateway.departure import Departure
from gateway.errors import ApiError, OverloadedError

CLOSING = "The gateway is shutting down; please retry, and another one answers."
RETRY_AFTER_S = "1"


class Doors:
    """Open at first. `close` lets nobody in any more, and `emptied` waits for those inside."""

    def __init__(self, max_inside: int = 10_000) -> None:
        self.closed = False
        self._max_inside = max_inside
        self._inside: set[Departure] = set()
        self._empty: asyncio.Event | None = None  # awaited

    @property
    def num_inside(self) -> int:
        return len(self._inside)

    def check(self) -> None:
        """Raises OverloadedError for one more who wants in and may not."""
        if self.closed:
            headers = {"retry-after": RETRY_AFTER_S, "connection": "close"}
            raise OverloadedError(CLOSING, code="shutting_down", headers=headers)
        if len(self._inside) >= self._max_inside:
            message = f"The gateway answers {self._max_inside} requests already, as many as it may; please retry later."
            raise OverloadedError(message, headers={"retry-after": RETRY_AFTER_S})

    def enter(self, visitor: Departure) -> None:
        """Also one that leaves its wait for a stream's first token and comes back to relay it."""
        self._inside.add(visitor)

    def leave(self, visitor: Departure) -> None:
        self._inside.discard(visitor)
        if self._empty is not None and not self._inside:
            self._empty.set()

    def close(self) -> None:
        self.closed = True

    async def emptied(self, timeout_s: float) -> bool:
        """Once nobody is inside; False if somebody still is when the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._inside:
                    self._empty = asyncio.Event()
                    await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def clear(self) -> int:
        """Has those leave who are still inside, each with an error in their hands. Returns how many they were."""
        visitors = list(self._inside)
        for visitor in visitors:
            visitor.stop(_cut_off())
        return len(visitors)


def _cut_off() -> ApiError:
    message = "The gateway was shut down before this answer was finished."
    return OverloadedError(message, code="shutting_down", headers={"retry-after": RETRY_AFTER_S, "connection": "close"})
