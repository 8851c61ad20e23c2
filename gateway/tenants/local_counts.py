"""Limits counted in this process: a token bucket per tenant for requests, one for tokens, a counter for slots.

A bucket holds one minute's allowance and refills continuously; it goes below zero when a request used more than it had
reserved, and the tenant then waits until that is paid back.
"""

import time

import msgspec

WINDOW_S = 60.0


class Standing(msgspec.Struct, frozen=True):
    """How a tenant stands against one of its limits, after a step that was `admitted` or not."""

    admitted: bool
    limit: int
    remaining: float
    wanted: float = 0.0  # what was asked for and refused

    @property
    def reset_s(self) -> float:
        """Until the whole allowance is back."""
        return (self.limit - self.remaining) * WINDOW_S / self.limit

    @property
    def retry_after_s(self) -> float:
        """Until what was refused would be admitted."""
        return max(0.0, (self.wanted - self.remaining) * WINDOW_S / self.limit)


class Bucket:
    __slots__ = ("_at", "_level")

    def __init__(self, limit: int, now: float) -> None:
        self._level = float(limit)
        self._at = now

    def level(self, limit: int, now: float) -> float:
        self._level = min(float(limit), self._level + (now - self._at) * limit / WINDOW_S)
        self._at = now
        return self._level

    def take(self, amount: float, limit: int, now: float) -> Standing:
        level = self.level(limit, now)
        if amount > level:
            return Standing(False, limit, level, amount)
        self._level = level - amount
        return Standing(True, limit, self._level)

    def give_back(self, amount: float, limit: int, now: float) -> None:
        """A negative amount takes what was used beyond the reservation."""
        self._level = min(float(limit), self.level(limit, now) + amount)


class LocalCounts:
    """All tenants' buckets. Nothing here awaits, so every step is atomic on the event loop."""

    def __init__(self) -> None:
        self._requests: dict[str, Bucket] = {}
        self._tokens: dict[str, Bucket] = {}
        self._running: dict[str, int] = {}

    def admit(self, tenant_id: str, requests_limit: int, slots_limit: int) -> tuple[Standing | None, Standing | None]:
        """Takes a request and a slot, both or neither; a limit of 0 is none. Returns the standings of the two."""
        slots: Standing | None = None
        running = self._running.get(tenant_id, 0)
        if slots_limit:
            slots = Standing(running < slots_limit, slots_limit, float(slots_limit - running), 1.0)
            if not slots.admitted:
                return None, slots
        requests: Standing | None = None
        if requests_limit:
            now = time.monotonic()
            requests = _bucket(self._requests, tenant_id, requests_limit, now).take(1.0, requests_limit, now)
            if not requests.admitted:
                return requests, slots
        if slots_limit:
            self._running[tenant_id] = running + 1
        return requests, slots

    def reserve(self, tenant_id: str, limit: int, tokens: float) -> Standing:
        now = time.monotonic()
        return _bucket(self._tokens, tenant_id, limit, now).take(tokens, limit, now)

    def give_back(self, tenant_id: str, limit: int, tokens: float) -> None:
        now = time.monotonic()
        _bucket(self._tokens, tenant_id, limit, now).give_back(tokens, limit, now)

    def leave(self, tenant_id: str) -> None:
        left = self._running[tenant_id] - 1
        if left:
            self._running[tenant_id] = left
        else:
            del self._running[tenant_id]


def _bucket(buckets: dict[str, Bucket], tenant_id: str, limit: int, now: float) -> Bucket:
    bucket = buckets.get(tenant_id)
    if bucket is None:
        bucket = buckets[tenant_id] = Bucket(limit, now)
    return bucket
