import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from semcache.cache import SemanticCache
from semcache.errors import StoreError
from semcache.store import redis as redis_store
from semcache.store.redis import PREFIX, RedisExactStore
from semcache.types import CacheOptions, Question, StoredAnswer
from tests.semcache.conftest import Ask, Reply
from tests.support.redis_line import line_before

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(redis_url: str, anyio_backend: str) -> AsyncIterator[RedisExactStore]:
    opened = RedisExactStore(redis_url, 60.0, timeout_s=1.0)
    yield opened
    await opened.aclose()


async def test_what_one_puts_another_gets(store: RedisExactStore, redis_url: str) -> None:
    other = RedisExactStore(redis_url, 60.0)
    await store.put(b"key", b"\x00value")
    assert await other.get(b"key") == b"\x00value"
    assert await other.get(b"other key") is None
    await other.delete(b"key")
    assert await store.get(b"key") is None
    await other.aclose()


async def test_whoever_leaves_in_mid_call_tears_down_no_connection(redis_url: str) -> None:
    async with line_before(redis_url) as line:
        store = RedisExactStore(line.url, 60.0, timeout_s=5.0)
        await store.put(b"first", b"1")
        await store.put(b"second", b"2")
        line.hold()
        asking = asyncio.create_task(store.get(b"first"))
        await line.has_asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not line.is_open.is_set()  # it did not wait for the answer
        line.is_open.set()
        await store._calls.wait()
        assert await store.get(b"second") == b"2"
        assert (line.num_connections, store.available) == (1, True)
        await store.aclose()


async def test_a_value_on_its_way_arrives_though_nobody_waits(redis_url: str, store: RedisExactStore) -> None:
    leaving = RedisExactStore(redis_url, 60.0, timeout_s=5.0)
    putting = asyncio.create_task(leaving.put(b"key", b"value"))
    await asyncio.sleep(0)
    putting.cancel()
    await asyncio.sleep(0)
    await leaving.aclose()
    assert putting.cancelled()
    assert await store.get(b"key") == b"value"


async def test_a_value_expires(redis_url: str) -> None:
    store = RedisExactStore(redis_url, 0.05)
    await store.put(b"key", b"value")
    assert await store.get(b"key") == b"value"
    await asyncio.sleep(0.1)
    assert await store.get(b"key") is None
    await store.aclose()


async def test_a_changed_ttl_counts_for_what_is_stored_from_then_on(
    redis_url: str, store: RedisExactStore, ask: Ask, reply: Reply
) -> None:
    cache = SemanticCache(CacheOptions(ttl_s=60), None, store)
    cache.reconfigure(CacheOptions(ttl_s=7200))
    question = ask("What is the capital of France?")
    await cache.admit(question, reply(question), None)
    async with Redis.from_url(redis_url) as redis:
        assert 7100 < await redis.ttl(PREFIX + question.exact_key) <= 7200


async def test_two_caches_share_exact_hits(redis_url: str, store: RedisExactStore, ask: Ask, reply: Reply) -> None:
    here = SemanticCache(CacheOptions(), None, store)
    there = SemanticCache(CacheOptions(), None, store)
    question = ask("What is the capital of France?", "tenant")
    await here.admit(question, reply(question), None)
    first, second = await there.lookup(question), await there.lookup(question)
    assert (first.outcome, first.reason) == ("hit-exact", "exact-shared")
    assert (second.outcome, second.reason) == ("hit-exact", "exact")
    assert first.answer == second.answer == reply(question, created_at=first.answer.created_at)
    assert (await there.lookup(ask("What is the capital of France?", "other tenant"))).outcome == "miss"


async def test_an_invalidated_answer_does_not_come_back_from_redis(
    store: RedisExactStore, ask: Ask, reply: Reply
) -> None:
    cache = SemanticCache(CacheOptions(), None, store)
    question = ask("What is the capital of France?")
    answer = reply(question)
    await cache.admit(question, answer, None)
    assert cache.invalidate(answer.entry_id)
    await store.put(question.exact_key, await _raw(store, cache, question, answer))  # another replica still wrote it
    assert (await cache.lookup(question)).outcome == "miss"
    await cache.aclose()


async def _raw(store: RedisExactStore, cache: SemanticCache, question: Question, answer: StoredAnswer) -> bytes:
    await cache.aclose()
    assert await store.get(question.exact_key) is None  # deleted there too
    await SemanticCache(CacheOptions(), None, store).admit(question, answer, None)
    raw = await store.get(question.exact_key)
    assert raw is not None
    return raw


async def test_a_cleared_cache_does_not_use_what_redis_held(store: RedisExactStore, ask: Ask, reply: Reply) -> None:
    cache = SemanticCache(CacheOptions(), None, store)
    question = ask("What is the capital of France?")
    await cache.admit(question, reply(question), None)
    cache.clear()
    assert (await cache.lookup(question)).outcome == "miss"
    await cache.admit(question, reply(question), None)
    assert (await cache.lookup(question)).outcome == "hit-exact"
    await cache.aclose()  # what it still deletes there


async def test_what_redis_held_of_a_cleared_owner_is_not_used(store: RedisExactStore, ask: Ask, reply: Reply) -> None:
    ours, theirs = (msgspec.structs.replace(ask("What is due?", owner), owner=owner) for owner in ("acme", "globex"))
    writer = SemanticCache(CacheOptions(), None, store)
    for question in (ours, theirs):
        await writer.admit(question, reply(question), None)
    reader = SemanticCache(CacheOptions(), None, store)
    assert reader.clear("acme") == 0
    assert (await reader.lookup(ours)).outcome == "miss"
    assert (await reader.lookup(theirs)).outcome == "hit-exact"
    await reader.aclose()


async def test_an_expired_answer_in_redis_is_a_miss(store: RedisExactStore, ask: Ask, reply: Reply) -> None:
    question = ask("What is the capital of France?")
    writer = SemanticCache(CacheOptions(ttl_s=1000), None, store)
    await writer.admit(question, reply(question, created_at=time.time() - 500), None)
    assert (await SemanticCache(CacheOptions(ttl_s=400), None, store).lookup(question)).outcome == "miss"
    assert (await SemanticCache(CacheOptions(ttl_s=600), None, store).lookup(question)).outcome == "hit-exact"


async def test_another_versions_value_is_a_miss_and_is_replaced(store: RedisExactStore, ask: Ask, reply: Reply) -> None:
    cache = SemanticCache(CacheOptions(), None, store)
    question = ask("What is the capital of France?")
    await store.put(question.exact_key, b"\x93not ours")
    assert (await cache.lookup(question)).outcome == "miss"
    await cache.admit(question, reply(question), None)
    assert (await SemanticCache(CacheOptions(), None, store).lookup(question)).outcome == "hit-exact"


async def test_redis_going_away_is_survived_and_said_once(
    redis_server: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, ask: Ask, reply: Reply
) -> None:
    monkeypatch.setattr(redis_store, "REST_S", 0.05)
    caplog.set_level(logging.WARNING)
    store = RedisExactStore(redis_server.url, 60.0, timeout_s=1.0)
    cache = SemanticCache(CacheOptions(), None, store)
    before, during = ask("asked before"), ask("asked during the outage")
    await cache.admit(before, reply(before), None)
    redis_server.stop()
    for _ in range(3):
        await cache.admit(during, reply(during), None)
        await asyncio.sleep(0.06)
        assert (await cache.lookup(ask("never seen"))).outcome == "miss"
    assert (await cache.lookup(before)).outcome == "hit-exact"
    assert (await cache.lookup(during)).outcome == "hit-exact"
    assert not store.available
    redis_server.start()
    await asyncio.sleep(0.06)
    await cache.admit(before, reply(before), None)
    assert store.available
    assert (await SemanticCache(CacheOptions(), None, store).lookup(before)).outcome == "hit-exact"
    said = [record.getMessage() for record in caplog.records if record.name == "semcache.store.redis"]
    assert len(said) == 2
    assert "away" in said[0]
    assert "back" in said[1]
    await store.aclose()


@contextmanager
def _silent_server() -> Iterator[int]:
    """Accepts connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


async def test_a_redis_that_does_not_answer_costs_little_time() -> None:
    with _silent_server() as port:
        store = RedisExactStore(f"redis://127.0.0.1:{port}/0", 60.0, timeout_s=0.05)
        started = time.perf_counter()
        for _ in range(50):
            assert await store.get(b"key") is None
        assert time.perf_counter() - started < 1.0  # one call waits, the others do not even try
        await store.aclose()


async def test_keys_carry_the_version_of_the_encoding(store: RedisExactStore, redis_url: str) -> None:
    from redis.asyncio import Redis

    await store.put(b"key", b"value")
    client = Redis.from_url(redis_url)
    assert await client.keys() == [PREFIX + b"key"]
    await client.aclose()


def test_a_bad_url_is_refused() -> None:
    with pytest.raises(StoreError, match="not a Redis URL"):
        RedisExactStore("http://localhost", 60.0)


async def test_what_is_cleared_for_an_owner_is_deleted_from_the_shared_store_too(
    redis_url: str, store: RedisExactStore, ask: Ask, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "SCANNED", 3)
    now = 1000.0
    writer = SemanticCache(CacheOptions(), None, store, clock=lambda: now)
    questions = [
        msgspec.structs.replace(ask(f"question {n}"), owner=owner) for n in range(10) for owner in ("a*", "ab")
    ]
    for question in questions:
        await writer.admit(question, msgspec.structs.replace(reply(question), created_at=now), None)
    after = msgspec.structs.replace(ask("a later question"), owner="a*")
    await writer.admit(after, msgspec.structs.replace(reply(after), created_at=now + 5), None)
    cleaner = SemanticCache(CacheOptions(), None, store, clock=lambda: now)  # it has never seen them
    cleaner.clear("a*", before=now)
    await cleaner.aclose()
    async with Redis.from_url(redis_url) as redis:
        left = [key.removeprefix(PREFIX) async for key in redis.scan_iter()]
    assert sorted(key[:3] for key in left) == [b"a*:"] + [b"ab:"] * 10
    assert (await writer.lookup(after, embed=False)).outcome == "hit-exact"
    cleaner.clear("ab", before=now - 10 * CacheOptions().ttl_s)  # long expired: nothing to look for
    await cleaner.aclose()
    async with Redis.from_url(redis_url) as redis:
        assert await redis.dbsize() == 11
