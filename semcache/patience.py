"""An embedder asked with limited patience. Knows nothing of caching.

A call that fails or takes too long costs at most the budget; after three in a row the embedder is left alone for a
while, so that a dead one does not slow down every request (Nygard's circuit breaker, with one probe at a time).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from semcache.errors import EmbedderError
from semcache.types import TextEmbedder

if TYPE_CHECKING:
    from semcache.vector import Vector

logger = logging.getLogger(__name__)

MAX_FAILURES = 3
REST_S = 5.0


class PatientEmbedder:
    """Gives a vector, or the reason why there is none."""

    def __init__(self, embedder: TextEmbedder, clock: Callable[[], float] = time.monotonic) -> None:
        self.embedder = embedder
        self.num_failures = 0  # since the start
        self._in_a_row = 0
        self._rests_until = 0.0
        self._clock = clock

    async def embed(self, text: str, timeout_s: float) -> "Vector | str":
        """The (d,) vector, or "embedder-timeout", "embedder-error", "embedder-resting"."""
        if self._in_a_row >= MAX_FAILURES:
            if self._clock() < self._rests_until:
                return "embedder-resting"
            self._rests_until = self._clock() + REST_S  # this call is the probe; the others go on resting
        try:
            async with asyncio.timeout(timeout_s):
                vectors = await self.embedder.embed([text])
        except TimeoutError:
            return self._failed("embedder-timeout", f"no vector within {timeout_s} s")
        except EmbedderError as error:
            return self._failed("embedder-error", str(error))
        if self._in_a_row >= MAX_FAILURES:
            logger.warning("the embedder is back: semantic hits are possible again")
        self._in_a_row = 0
        vector: Vector = vectors[0]
        return vector

    def _failed(self, reason: str, why: str) -> str:
        self.num_failures += 1
        self._in_a_row += 1
        if self._in_a_row >= MAX_FAILURES:
            self._rests_until = self._clock() + REST_S
        if self._in_a_row == MAX_FAILURES:
            logger.warning("the embedder fails (%s): only exact repeats are answered until it is back", why)
        return reason
