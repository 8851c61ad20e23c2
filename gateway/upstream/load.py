"""How busy and how quick one deployment is, as this gateway sees it. Nothing is sent to find out."""

import math
import time
from collections.abc import Callable

DECAY_S = 10.0
UNTRIED_S = 1e6  # what a deployment without a sample counts as while its first answer is under way


class PeakEwma:
    """A moving average of seconds that jumps to a worse sample and forgets it with time.

    Without samples it decays towards 0, so that what was slow once is tried again. The method is that of Finagle's
    load balancer (twitter.github.io/finagle, "Aperture Load Balancers", load metric "Peak EWMA").
    """

    __slots__ = ("_at", "_seconds")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._at = -math.inf  # of the last sample

    def observe(self, seconds: float, now: float) -> None:
        kept = math.exp((self._at - now) / DECAY_S)
        before = self._seconds * kept
        self._seconds = seconds if seconds >= before else before * kept + seconds * (1 - kept)
        self._at = now

    def at(self, now: float) -> float | None:
        if self._at == -math.inf:
            return None
        return self._seconds * math.exp((self._at - now) / DECAY_S)


class Load:
    """Streams are measured to their first token, other answers to their end: the two are kept apart."""

    __slots__ = ("_clock", "_streamed", "_whole", "outstanding")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.outstanding = 0  # calls under way
        self._clock = clock
        self._streamed = PeakEwma()
        self._whole = PeakEwma()

    def observe(self, seconds: float, *, stream: bool) -> None:
        (self._streamed if stream else self._whole).observe(seconds, self._clock())

    def latency_s(self, *, stream: bool) -> float | None:
        """None without a sample."""
        return (self._streamed if stream else self._whole).at(self._clock())

    def cost_s(self, *, stream: bool) -> float:
        """What one more call is expected to wait, those under way included. An untried deployment gets one call."""
        seconds = self.latency_s(stream=stream)
        if seconds is None:
            return self.outstanding * UNTRIED_S
        return seconds * (self.outstanding + 1)
