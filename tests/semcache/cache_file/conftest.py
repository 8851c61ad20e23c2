"""A cache with a file, started again and again in one folder."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from semcache.cache import SemanticCache
from semcache.embedder import Embedder
from semcache.store.opening import open_file
from semcache.types import CacheOptions, Question
from tests.semcache.conftest import Ask, Reply

Start = Callable[..., Awaitable[SemanticCache]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


@pytest.fixture
async def start(path: Path, anyio_backend: str) -> AsyncIterator[Start]:
    """A cache as a process has it after its start; a second one is the next process, once the first is closed."""
    started: list[SemanticCache] = []

    async def do(embedder: Embedder | None = None, **options: object) -> SemanticCache:
        file = await open_file(path, wanted=True)
        cache = SemanticCache(CacheOptions(embed_timeout_s=60.0, **options), embedder, file=file)  # type: ignore[arg-type]
        started.append(cache)
        await cache.load()
        return cache

    yield do
    for cache in started:
        await cache.aclose()


async def outcomes(cache: SemanticCache, questions: list[Question]) -> list[str]:
    return [(await cache.lookup(question, embed=False)).outcome for question in questions]


async def fill(cache: SemanticCache, questions: list[Question], reply: Reply, body: bytes = b"") -> None:
    for question in questions:
        await cache.admit(question, reply(question, body), None)


def several(ask: Ask, count: int) -> list[Question]:
    return [ask(f"What is the capital of country number {number}?") for number in range(count)]


def all_bytes(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.iterdir() if each.is_file())


async def stored(start: Start, questions: list[Question], reply: Reply, body: bytes = b"") -> None:
    cache = await start()
    await fill(cache, questions, reply, body)
    await cache.aclose()
