"""What the cache's tests share: a real embedder, a cache in front of it, questions and answers."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from semcache.cache import SemanticCache
from semcache.embedder import Embedder
from semcache.key import digest
from semcache.sentence_model import SentenceModel
from semcache.types import CacheOptions, Lookup, Question, StoredAnswer

Ask = Callable[..., Question]
Reply = Callable[..., StoredAnswer]
CacheOf = Callable[..., SemanticCache]
Remember = Callable[..., Awaitable[StoredAnswer]]


def outcome(found: Lookup) -> tuple[str, str]:
    return found.outcome, found.reason


@pytest.fixture(scope="session")
def sentence_model(minilm_path: Path) -> SentenceModel:
    return SentenceModel(minilm_path)


@pytest.fixture
async def embedder(
    minilm_path: Path, sentence_model: SentenceModel, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> AsyncIterator[Embedder]:
    """The real one, but the weights are read only once for all tests."""
    monkeypatch.setattr("semcache.embedder.SentenceModel", lambda *_, **__: sentence_model)
    running = Embedder(minilm_path)
    await running.start()
    yield running
    await running.aclose()


@pytest.fixture
def ask() -> Ask:
    """A question of a partition; other partitions are other tenants, system prompts, histories, models."""

    def make(text: str, *partition: object) -> Question:
        return Question(partition=digest(*partition), exact_key=digest(text, *partition), text=text)

    return make


@pytest.fixture
def reply() -> Reply:
    """An answer to a question, with the question's text as its id and body unless told otherwise."""

    def make(
        question: Question, body: bytes = b"", entry_id: str = "", created_at: float | None = None
    ) -> StoredAnswer:
        return StoredAnswer(
            entry_id=entry_id or question.exact_key.hex(),
            question=question.text,
            body=body or question.text.encode() or b"{}",
            model="m",
            tier="small",
            prompt_tokens=7,
            completion_tokens=11,
            created_at=time.time() if created_at is None else created_at,
        )

    return make


@pytest.fixture
def cache_of(embedder: Embedder) -> CacheOf:
    """A cache with these options over the real embedder."""

    def make(**options: object) -> SemanticCache:
        return SemanticCache(CacheOptions(embed_timeout_s=60.0, **options), embedder)  # type: ignore[arg-type]

    return make


@pytest.fixture
def remember(reply: Reply) -> Remember:
    """Asks, misses, and stores an answer, as a gateway does."""

    async def do(cache: SemanticCache, question: Question, body: bytes = b"", **fields: object) -> StoredAnswer:
        missed = await cache.lookup(question)
        answer = reply(question, body, **fields)
        await cache.admit(question, answer, missed.embedding)
        return answer

    return do
