"""An embedder that is dead, or another than before."""

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import pytest

from semcache.cache import SemanticCache
from semcache.errors import CacheError, EmbedderError
from semcache.types import CacheOptions
from tests.semcache.conftest import Ask, CacheOf, Reply

pytestmark = pytest.mark.anyio


class Broken:
    """An embedder whose vectors never come."""

    id = "broken"
    dimension = 384

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(3600)
        raise AssertionError

    def fits(self, text: str) -> bool:
        return True


@pytest.mark.parametrize(
    ("broken", "reason"), [(Broken(), "embedder-timeout"), (Broken(EmbedderError("no")), "embedder-error")]
)
async def test_a_dead_embedder_costs_little_time_and_leaves_exact_hits(
    broken: Broken, reason: str, ask: Ask, reply: Reply
) -> None:
    cache = SemanticCache(CacheOptions(embed_timeout_s=0.05), broken)
    question = ask("What is the capital of France?")
    await cache.admit(question, reply(question), None)
    started = time.perf_counter()
    reasons = [(await cache.lookup(ask(f"another question, number {number}"))).reason for number in range(20)]
    assert time.perf_counter() - started < 1.0
    assert reasons == [reason] * 3 + ["embedder-resting"] * 17
    assert (await cache.lookup(question)).outcome == "hit-exact"
    assert cache.stats().embed_failures == 3


async def test_another_embedder_starts_a_fresh_index(cache_of: CacheOf, ask: Ask, reply: Reply) -> None:
    """A vector of other weights is never compared with the old ones, whatever its dimension."""
    cache = cache_of()
    first, second = ask("What is the capital of France?"), ask("What is the largest city of Spain?")
    await cache.admit(first, reply(first), np.eye(1, 384, dtype=np.float32)[0])
    renamed = Broken()
    cache._embedder.embedder = renamed  # type: ignore[union-attr]
    await cache.admit(second, reply(second), np.eye(1, 128, dtype=np.float32)[0])
    assert cache._shelf.vectors is not None
    assert (cache._shelf.vectors.embedder_id, cache._shelf.vectors.dimension) == ("broken", 128)
    assert (cache.stats().entries, cache.stats().vectors) == (2, 1)
    with pytest.raises(CacheError, match="shape"):
        await cache.admit(
            ask("What is the oldest city of Spain?"), reply(second, entry_id="x"), np.eye(1, 384, dtype=np.float32)[0]
        )
