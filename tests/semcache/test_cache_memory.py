"""What the cache keeps and for how long: expiry, its budget, newer answers, and what is cleared."""

import asyncio
import time

import msgspec
import pytest

from semcache.cache import SemanticCache
from semcache.embedder import Embedder
from semcache.errors import CacheError
from semcache.key import digest
from semcache.types import CacheOptions, Question
from tests.semcache.conftest import Ask, CacheOf, Remember, Reply, outcome

pytestmark = pytest.mark.anyio


async def test_an_answer_expires(embedder: Embedder, ask: Ask, remember: Remember) -> None:
    now = 1_000_000.0
    cache = SemanticCache(
        CacheOptions(embed_timeout_s=60, ttl_s=60, similarity_threshold=0.85), embedder, clock=lambda: now
    )
    await remember(cache, ask("How do I reset my password?"), created_at=now)
    now += 59
    assert (await cache.lookup(ask("How do I reset my password?"))).outcome == "hit-exact"
    assert (await cache.lookup(ask("How can I reset my password?"))).outcome == "hit-semantic"
    now += 1
    assert outcome(await cache.lookup(ask("How can I reset my password?"))) == ("miss", "expired")
    await remember(cache, ask("How do I reset my password?"), created_at=now)
    now += 60
    assert outcome(await cache.lookup(ask("How do I reset my password?"))) == ("miss", "expired")
    assert outcome(await cache.lookup(ask("How do I reset my password?"))) == ("miss", "empty")
    stats = cache.stats()
    assert (stats.entries, stats.vectors, stats.bytes, stats.expirations) == (0, 0, 0, 2)


async def test_the_least_recently_used_leave_first_and_leave_no_ghosts(
    cache_of: CacheOf, ask: Ask, remember: Remember
) -> None:
    cache = cache_of(max_mb=1)
    body = b"x" * 100_000
    questions = [ask(f"What is the capital of country number {number}?") for number in range(10)]
    for question in questions:
        await remember(cache, question, body)
    assert (await cache.lookup(questions[0])).outcome == "hit-exact"
    for number in range(10, 16):
        await remember(cache, ask(f"What is the capital of country number {number}?"), body)
    stats = cache.stats()
    assert stats.bytes <= 1024 * 1024
    assert stats.entries == stats.vectors == 10
    assert stats.evictions == 6
    assert (await cache.lookup(questions[0])).outcome == "hit-exact"
    for gone in questions[1:7]:
        assert (await cache.lookup(gone)).outcome == "miss"
    assert (await cache.lookup(questions[7])).outcome == "hit-exact"


async def test_the_budget_is_about_what_python_needs(ask: Ask, reply: Reply) -> None:
    import tracemalloc

    cache = SemanticCache(CacheOptions(), None)
    tracemalloc.start()
    for number in range(3000):
        question = Question(partition=digest("p"), exact_key=digest(number), text=f"question number {number}")
        await cache.admit(question, reply(question, b"%d" % number * 100), None)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.5 < cache.stats().bytes / held < 2.0


async def test_a_smaller_budget_evicts_at_once_and_bad_options_change_nothing(ask: Ask, reply: Reply) -> None:
    cache = SemanticCache(CacheOptions(max_mb=4), None)
    for number in range(30):
        question = ask(f"question {number}")
        await cache.admit(question, reply(question, b"x" * 100_000), None)
    assert cache.stats().entries == 30
    with pytest.raises(CacheError):
        cache.reconfigure(CacheOptions(max_mb=1, similarity_threshold=0.2))
    assert cache.stats().entries == 30
    cache.reconfigure(CacheOptions(max_mb=1))
    assert cache.stats().entries < 11
    assert cache.stats().bytes <= 1024 * 1024


async def test_an_answer_too_large_is_not_stored(ask: Ask, reply: Reply) -> None:
    cache = SemanticCache(CacheOptions(max_answer_kb=10), None)
    question = ask("tell me everything about whales")
    assert await cache.admit(question, reply(question, b"x" * 10_241), None) == "answer-too-large"
    assert await cache.admit(question, reply(question, b"x" * 10_240), None) == "stored"
    assert cache.stats().rejections == {"answer-too-large": 1}


async def test_a_newer_answer_takes_the_olders_place(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of()
    question = ask("What is the capital of France?")
    await remember(cache, question, b"old", entry_id="1")
    await cache.admit(question, await remember(cache, question, b"new", entry_id="2"), None)
    found = await cache.lookup(question)
    assert found.answer is not None
    assert found.answer.body == b"new"
    assert cache.stats().entries == 1
    assert not cache.invalidate("1")


async def test_an_invalidated_entry_is_not_served_to_near_questions_either(
    cache_of: CacheOf, ask: Ask, remember: Remember
) -> None:
    cache = cache_of(similarity_threshold=0.85)
    answer = await remember(cache, ask("How do I reset my password?"))
    assert (await cache.lookup(ask("How can I reset my password?"))).outcome == "hit-semantic"
    assert cache.invalidate(answer.entry_id)
    assert not cache.invalidate(answer.entry_id)
    assert outcome(await cache.lookup(ask("How can I reset my password?"))) == ("miss", "empty")
    assert outcome(await cache.lookup(ask("How do I reset my password?"))) == ("miss", "empty")


async def test_a_cleared_cache_is_empty(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of()
    await remember(cache, ask("How do I reset my password?"))
    cache.clear()
    assert outcome(await cache.lookup(ask("How do I reset my password?"))) == ("miss", "empty")
    assert cache.stats().bytes == 0


async def test_one_owners_answers_are_cleared_alone_and_only_those_from_before(ask: Ask, reply: Reply) -> None:
    cache = SemanticCache(CacheOptions(), None)
    questions = {
        (owner, age): msgspec.structs.replace(ask(f"a question of {owner}", age), owner=owner)
        for owner in ("acme", "globex")
        for age in (100, 10)
    }
    now = time.time()
    for (_, age), question in questions.items():
        await cache.admit(question, reply(question, created_at=now - age), None)
    assert cache.clear("acme", before=now - 50) == 1
    found = {asked: (await cache.lookup(question)).outcome for asked, question in questions.items()}
    assert found == {
        ("acme", 100): "miss",
        ("acme", 10): "hit-exact",
        ("globex", 100): "hit-exact",
        ("globex", 10): "hit-exact",
    }


async def test_many_callers_at_once_see_one_consistent_cache(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of(max_mb=1)

    async def visit(number: int) -> None:
        question = ask(f"What is the height of mountain {number % 20}?", number % 3)
        found = await cache.lookup(question)
        if found.answer is None:
            await cache.admit(question, await remember(cache, question, b"x" * 30_000), found.embedding)
        else:
            assert found.answer.question == question.text

    await asyncio.gather(*(visit(number) for number in range(200)))
    stats = cache.stats()
    assert stats.evictions > 0
    assert stats.entries == stats.vectors > 0
    assert stats.bytes <= 1024 * 1024
