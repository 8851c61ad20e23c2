"""How long a cached answer takes, at library level: `python -m benchmarks.cache`.

p50 and p95 of an exact hit and of a semantic hit, embedding included, with 1,000 and 10,000 entries in one partition
and 10,000 entries over 1,000 partitions. The digest over a request of about 1.6 kB is part of each. On a busy machine
the column CPU (processor time) says more than p50.
"""

import argparse
import asyncio
import random
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from semcache.cache import SemanticCache
from semcache.embedder import Embedder
from semcache.key import digest
from semcache.types import CacheOptions, Question, StoredAnswer

MODEL = Path(".tollhouse/models")
WARM_UP = 20
WORDINGS = {
    "exact": "How do I reset the password of account {}?",
    "semantic": "How can I reset the password of account {}?",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="sentence-transformers folder; default: what `make serve` pulled")
    parser.add_argument("--calls", type=int, default=300)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.model or find_model(), arguments.calls))


def find_model() -> Path:
    for modules in sorted(MODEL.rglob("modules.json")):
        return modules.parent
    raise SystemExit(f"no sentence-transformers model under {MODEL}: run `tollhouse models pull` or give --model")


async def run(model: Path, calls: int) -> None:
    embedder = Embedder(model)
    await embedder.start()
    table = Table(title=f"Cached answers, embedder in {embedder.model.dtype}, {calls} calls each (ms)")
    for column in ("entries", "partitions", "tier", "p50", "p95", "CPU", "hits"):
        table.add_column(column, justify="right")
    for num_entries, num_partitions in ((1_000, 1), (10_000, 1), (10_000, 1_000)):
        cache = await filled(embedder, num_entries, num_partitions)
        for tier, wording in WORDINGS.items():
            row = await measured(cache, wording, num_entries, num_partitions, calls)
            table.add_row(f"{num_entries:,}", f"{num_partitions:,}", tier, *row)
    await embedder.aclose()
    Console().print(table)


async def measured(cache: SemanticCache, wording: str, num_entries: int, num_partitions: int, calls: int) -> list[str]:
    """p50, p95, processor time a call, and how many hit."""
    rng = random.Random(1)
    times, hits, cpu_started = [], 0, 0
    for call in range(-WARM_UP, calls):
        number = rng.randrange(num_entries)
        if call == 0:
            cpu_started = time.process_time_ns()
        started = time.perf_counter_ns()
        asked = question(wording.format(number), number % num_partitions)
        found = await cache.lookup(asked)
        if call >= 0:
            times.append((time.perf_counter_ns() - started) / 1e6)
            hits += found.answer is not None and found.answer.question == WORDINGS["exact"].format(number)
    cpu = (time.process_time_ns() - cpu_started) / 1e6 / calls
    p50, p95 = np.percentile(times, [50, 95])
    return [f"{p50:.3f}", f"{p95:.3f}", f"{cpu:.3f}", f"{hits}/{calls}"]


def question(text: str, partition: int) -> Question:
    """As a gateway makes it: the digest of everything in the request."""
    request = {"model": "gpt-4o", "messages": [{"role": "system", "content": "You help. " * 150}], "temperature": 0}
    return Question(partition=digest(partition, request), exact_key=digest(partition, request, text), text=text)


async def filled(embedder: Embedder, num_entries: int, num_partitions: int) -> SemanticCache:
    """Real questions with their real embeddings, 32 at a time."""
    cache = SemanticCache(CacheOptions(similarity_threshold=0.9), embedder)
    for start in range(0, num_entries, 32):
        numbers = range(start, min(start + 32, num_entries))
        texts = [WORDINGS["exact"].format(number) for number in numbers]
        for number, text, vector in zip(numbers, texts, await embedder.embed(texts), strict=True):
            asked = question(text, number % num_partitions)
            await cache.admit(asked, answer(asked), vector)
    return cache


def answer(asked: Question) -> StoredAnswer:
    return StoredAnswer(
        entry_id=asked.exact_key.hex(),
        question=asked.text,
        body=b'{"choices": []}' * 60,
        model="gpt-4o",
        tier="large",
        prompt_tokens=300,
        completion_tokens=200,
        created_at=time.time(),
    )


if __name__ == "__main__":
    main()
