"""Streams from any /v1/completions server, timed: N at once, each with its own prompt. Knows no contestant."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

import aiohttp

SMALLEST_ID, LARGEST_ID = 100, 40_000  # ordinary tokens of the model's vocabulary


@dataclass(slots=True)
class Stream:
    """Seconds since the request was sent, of each chunk that has a token."""

    arrivals: list[float] = field(default_factory=list)
    total_s: float = 0.0

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.arrivals, self.arrivals[1:], strict=False)]


@dataclass(slots=True, frozen=True)
class Target:
    """Prompts are token ids, so that every server sees the same number of tokens and nothing is tokenised."""

    url: str
    model: str
    headers: dict[str, str] = field(default_factory=dict)
    extra: dict[str, object] = field(default_factory=dict)


def random_prompt(num_tokens: int, seed: int) -> list[int]:
    """Shares no prefix with any other seed's; with its own it does, whatever their lengths."""
    source = random.Random(seed)
    return [source.randint(SMALLEST_ID, LARGEST_ID) for _ in range(num_tokens)]


async def stream(session: aiohttp.ClientSession, target: Target, prompt: list[int], max_tokens: int) -> Stream:
    """Greedy, to the last token. Raises RuntimeError when the server refuses, breaks off or gave fewer tokens."""
    body = {"model": target.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    found, num_tokens = Stream(), max_tokens
    start = time.perf_counter()
    async with session.post(
        f"{target.url}/v1/completions", json=body | target.extra, headers=target.headers
    ) as response:
        if response.status != 200:
            raise RuntimeError(f"{target.url}: {response.status} {await response.text()}")
        async for line in response.content:
            now = time.perf_counter() - start
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            if "error" in chunk:
                raise RuntimeError(f"{target.url}: {chunk['error']}")
            if chunk.get("choices"):
                found.arrivals.append(now)
            if chunk.get("usage"):
                num_tokens = chunk["usage"]["completion_tokens"]
    found.total_s = time.perf_counter() - start
    if num_tokens != max_tokens or not found.arrivals:
        raise RuntimeError(f"{target.url}: {num_tokens} tokens in {len(found.arrivals)} chunks, not {max_tokens}")
    return found


async def together(target: Target, num_streams: int, num_prompt: int, num_output: int, seed: int) -> float:
    """Output tokens per second over all streams, from the first request to the last token."""
    async with _session() as session:
        start = time.perf_counter()
        prompts = [random_prompt(num_prompt, seed + index) for index in range(num_streams)]
        await asyncio.gather(*(stream(session, target, prompt, num_output) for prompt in prompts))
        return num_streams * num_output / (time.perf_counter() - start)


async def prefill(target: Target, num_prompt: int, seed: int) -> float:
    """Prompt tokens per second, to the first token of the answer."""
    async with _session() as session:
        found = await stream(session, target, random_prompt(num_prompt, seed), 1)
        return num_prompt / found.total_s


async def worst_gap(target: Target, num_prompt: int, seed: int) -> tuple[float, float]:
    """(longest gap of a running stream while a long prompt arrives, the long prompt's time to its first token), s."""
    async with _session() as session:
        running = asyncio.create_task(stream(session, target, random_prompt(16, seed), 256))
        await asyncio.sleep(0.3)
        long = await stream(session, target, random_prompt(num_prompt, seed + 1), 1)
        return max((await running).gaps), long.total_s


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=1200)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0), read_bufsize=1 << 20)
