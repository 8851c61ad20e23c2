"""How fast a cache comes back after a restart, and what keeping it costs: `python -m benchmarks.cache_restart`.

Entries of 500 bytes with made-up vectors of 384 components; no embedder runs. Loading is opening the file, reading,
checking, decoding and filling the shelf and the index, as at a gateway's start. Storing is `admit`, on the event loop,
with the file and without one; "disk" is when the last of them is written. On a busy machine the processor time of
the load says more than its seconds.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from semcache.cache import SemanticCache
from semcache.key import digest
from semcache.store.opening import open_file
from semcache.types import CacheOptions, Question, StoredAnswer
from semcache.vector import Vector, Vectors

DIMENSION = 384
OPTIONS = CacheOptions(max_mb=4096, ttl_s=1e6)
BODY = b"x" * 500
ROUND = 10_000  # entries; less than what may wait for the disk


class Weights:
    """An embedder's identity; it embeds nothing."""

    id, dimension = "made-up", DIMENSION

    async def embed(self, texts: Sequence[str]) -> Vectors:
        raise AssertionError("the entries bring their vectors")

    def fits(self, text: str) -> bool:
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    asyncio.run(run(parser.parse_args().entries))


async def run(num_entries: int) -> None:
    table = Table(title=f"{num_entries:,} entries")
    for column in (
        "partitions",
        "admit, no file (us)",
        "admit (us)",
        "disk (s)",
        "MB",
        "load (s)",
        "CPU (s)",
        "entries/s",
    ):
        table.add_column(column, justify="right")
    for num_partitions in (1, num_entries // 100, num_entries):
        table.add_row(f"{num_partitions:,}", *await measured(num_entries, num_partitions))
    Console().print(table)


async def measured(num_entries: int, num_partitions: int) -> list[str]:
    vectors = np.random.default_rng(1).standard_normal((num_entries, DIMENSION), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    alone, _ = await stored(SemanticCache(OPTIONS, Weights()), vectors, num_partitions)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.db"
        cache = SemanticCache(OPTIONS, Weights(), file=await open_file(path, wanted=True))
        kept, on_disk_s = await stored(cache, vectors, num_partitions)
        await cache.aclose()
        size_mb = path.stat().st_size / 1e6
        started, cpu_started = time.perf_counter(), time.process_time()
        again = SemanticCache(OPTIONS, Weights(), file=await open_file(path, wanted=True))
        await again.load()
        load_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
        assert again.stats().entries == again.stats().vectors == num_entries
        await again.aclose()
    figures = (alone * 1e6, kept * 1e6, on_disk_s, size_mb, load_s, cpu_s)
    return [*(f"{figure:.2f}" for figure in figures), f"{num_entries / load_s:,.0f}"]


async def stored(cache: SemanticCache, vectors: Vectors, num_partitions: int) -> tuple[float, float]:
    """Seconds on the event loop for each entry; seconds in all."""
    spent, started = 0.0, time.perf_counter()
    for first in range(0, len(vectors), ROUND):
        batch = [entry(number, num_partitions, vectors[number]) for number in range(first, first + ROUND)]
        began = time.perf_counter()
        for question, answer, vector in batch:
            await cache.admit(question, answer, vector)
        spent += time.perf_counter() - began
        await cache.settle()
    return spent / len(vectors), time.perf_counter() - started


def entry(number: int, num_partitions: int, vector: Vector) -> tuple[Question, StoredAnswer, Vector]:
    text = f"How do I reset the password of account {number}?"
    question = Question(partition=digest(number % num_partitions), exact_key=digest(number), text=text, owner="acme")
    answer = StoredAnswer(
        entry_id=f"entry-{number}",
        question=text,
        body=BODY,
        model="m",
        tier="small",
        prompt_tokens=7,
        completion_tokens=11,
        created_at=time.time(),
    )
    return question, answer, vector


if __name__ == "__main__":
    main()
