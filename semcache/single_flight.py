"""Identical questions that arrive together become one upstream call. Knows nothing of what the call is.

The method is Go's golang.org/x/sync/singleflight, with one difference: a leader that fails, leaves or has an answer
that may not be shared does not take its followers with it; the next of them leads.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from semcache.types import StoredAnswer


class Flight:
    """One caller's part: it leads (`answer` is None: do the call, then `land`) or was given the leader's answer."""

    __slots__ = ("answer", "landed")

    def __init__(self, answer: StoredAnswer | None) -> None:
        self.answer = answer
        self.landed: StoredAnswer | None = None

    @property
    def leads(self) -> bool:
        return self.answer is None

    def land(self, answer: StoredAnswer | None) -> None:
        """What the followers get. Never called, or None: the next follower leads."""
        self.landed = answer


class SingleFlight:
    """At most one leader at a time for each key; lives on one event loop."""

    def __init__(self) -> None:
        self._followers: dict[bytes, deque[asyncio.Future[StoredAnswer | None]]] = {}

    def __len__(self) -> int:
        """Keys that somebody leads now."""
        return len(self._followers)

    def num_followers(self, key: bytes) -> int:
        return len(self._followers.get(key, ()))

    @asynccontextmanager
    async def join(self, key: bytes) -> AsyncIterator[Flight]:
        """Leads at once if nobody does; otherwise waits for the leader's answer, or for the turn to lead.

        Leaving the block, by whatever way, hands over: the landed answer goes to every follower, no answer makes the
        next follower the leader. A follower that is cancelled while it waits just leaves the queue.
        """
        answer = await self._wait_for_turn(key)
        flight = Flight(answer)
        if not flight.leads:
            yield flight
            return
        try:
            yield flight
        finally:
            self._hand_over(key, flight.landed)

    async def _wait_for_turn(self, key: bytes) -> StoredAnswer | None:
        """The leader's answer, or None: this caller leads."""
        followers = self._followers.get(key)
        if followers is None:
            self._followers[key] = deque()
            return None
        turn: asyncio.Future[StoredAnswer | None] = asyncio.get_running_loop().create_future()
        followers.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                if turn in followers:  # else the leader left in the same turn of the loop, and passed this one over
                    followers.remove(turn)
            elif turn.result() is None:  # became the leader in the very moment it left: the next one must lead
                self._hand_over(key, None)
            raise

    def _hand_over(self, key: bytes, answer: StoredAnswer | None) -> None:
        followers = self._followers[key]
        if answer is None:
            while followers:
                turn = followers.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        del self._followers[key]
        for turn in followers:
            if not turn.done():
                turn.set_result(answer)
