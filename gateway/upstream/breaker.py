"""A circuit breaker for one deployment: after failures in a row it is left alone, then one request tries it.

Knows no HTTP and no other deployment: whoever asks it decides what else to do.
"""

import time
from collections.abc import Callable
from typing import Literal

MAX_COOL_DOWN_S = 120.0


class Breaker:
    """Closed: all may pass. Open: none, until the cool-down ends. Then half-open: one probe, whose outcome decides.

    A probe that fails doubles the cool-down, up to two minutes; a success forgets everything.
    """

    def __init__(
        self, max_failures: int = 3, cool_down_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_failures = max_failures
        self._cool_down_s = cool_down_s
        self._clock = clock
        self._failures = 0
        self._opened = 0  # times in a row
        self._open_until = 0.0  # 0: closed
        self._rest_until = 0.0
        self._probing = False
        self.untroubled = True  # closed, and nothing has failed since the last success

    @property
    def is_open(self) -> bool:
        """No request should go there now."""
        return self._probing or self._clock() < self._open_until

    @property
    def is_half_open(self) -> bool:
        """The cool-down is over, and nobody has tried yet."""
        return self._open_until > 0 and not self.is_open

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        if self._open_until == 0:
            return "closed"
        return "open" if self._clock() < self._open_until else "half-open"

    @property
    def open_until(self) -> float:
        """On the breaker's clock; 0 while it is closed."""
        return self._open_until

    @property
    def open_for_s(self) -> float:
        """How long it will still be open; 0 once a probe may pass."""
        return max(0.0, self._open_until - self._clock())

    def allow(self) -> bool:
        """May a request go there? The one that may after a cool-down is the probe: its outcome must be told."""
        if self.untroubled:
            return True
        if self.is_open:
            return False
        self._probing = self._open_until > 0
        return True

    def success(self) -> None:
        if self.untroubled:
            return
        self._failures = self._opened = 0
        self._probing = False
        if self._clock() >= self._rest_until:  # one that was under way says nothing about the others
            self._open_until = 0.0
            self.untroubled = True

    def failure(self) -> None:
        self._failures += 1
        self.untroubled = False
        if self._clock() < self._open_until:
            return  # it was under way when others opened the breaker
        if self._probing or self._failures >= self._max_failures:
            self._open(min(self._cool_down_s * 2**self._opened, MAX_COOL_DOWN_S))
            self._opened += 1

    def rest(self, seconds: float) -> None:
        """The upstream itself asked to be left alone that long, within reason."""
        seconds = min(seconds, MAX_COOL_DOWN_S)
        self._rest_until = max(self._rest_until, self._clock() + seconds)
        self._open(seconds)

    def abandon(self) -> None:
        """The request ended without an outcome (its client left): another one may probe."""
        self._probing = False

    def _open(self, seconds: float) -> None:
        self._open_until = max(self._open_until, self._clock() + seconds)
        self._probing = self.untroubled = False
