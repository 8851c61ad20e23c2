"""What a caller or a setting leaves out of the cache: reading, the semantic tier, all of it; and thresholds."""

import pytest

from semcache.cache import SemanticCache
from semcache.errors import CacheError
from semcache.types import CacheOptions, Question
from tests.semcache.conftest import Ask, CacheOf, Remember, Reply, outcome

pytestmark = pytest.mark.anyio


async def test_no_cache_reads_nothing_but_still_embeds(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of()
    await remember(cache, ask("What is the capital of France?"))
    found = await cache.lookup(ask("What is the capital of France?"), read=False)
    assert outcome(found) == ("bypass", "no-cache")
    assert found.embedding is not None
    assert (await cache.lookup(ask("What is the capital of France?"), read=False, embed=False)).embedding is None


async def test_a_refreshed_answer_is_still_found_by_paraphrase(cache_of: CacheOf, ask: Ask, reply: Reply) -> None:
    cache = cache_of(similarity_threshold=0.85)
    question = ask("How do I reset my password?")
    for round_ in range(3):
        unread = await cache.lookup(question, read=False, embed=False)  # "no-cache", of a request that is not routed
        assert (unread.embedding is not None) == (round_ == 0)  # later ones find the vector of the replaced entry
        await cache.admit(question, reply(question, b"round %d" % round_), unread.embedding)
        found = await cache.lookup(ask("How can I reset my password?"))
        assert found.outcome == "hit-semantic"
        assert found.answer is not None
        assert found.answer.body == b"round %d" % round_
    assert (cache.stats().entries, cache.stats().vectors) == (1, 1)


async def test_a_refresh_keeps_no_vector_that_the_semantic_tier_may_not_use(
    cache_of: CacheOf, ask: Ask, remember: Remember, reply: Reply
) -> None:
    cache = cache_of()
    question = ask("How do I reset my password?")
    await remember(cache, question)
    cache.reconfigure(CacheOptions(semantic=False))
    assert (await cache.lookup(question, read=False, embed=False)).embedding is None
    await cache.admit(question, reply(question), None)
    assert (cache.stats().entries, cache.stats().vectors) == (1, 0)


async def test_switched_off_is_a_bypass(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of(enabled=False)
    await remember(cache, ask("What is the capital of France?"))
    found = await cache.lookup(ask("What is the capital of France?"))
    assert outcome(found) == ("bypass", "disabled")
    assert found.embedding is not None
    assert cache.stats().entries == 0
    assert cache.stats().rejections == {"disabled": 1}


async def test_semantic_off_leaves_exact_repeats(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of(semantic=False, similarity_threshold=0.6)
    await remember(cache, ask("How do I reset my password?"))
    assert outcome(await cache.lookup(ask("How can I reset my password?"))) == ("miss", "exact-only")
    assert (await cache.lookup(ask("How do I reset my password?"))).outcome == "hit-exact"
    assert cache.stats().vectors == 0


async def test_without_text_only_the_exact_tier_answers(cache_of: CacheOf, reply: Reply) -> None:
    cache = cache_of()
    question = Question(partition=b"p", exact_key=b"k")
    missed = await cache.lookup(question)
    assert outcome(missed) == ("miss", "no-text")
    assert missed.embedding is None
    await cache.admit(question, reply(question), None)
    assert (await cache.lookup(question)).outcome == "hit-exact"


async def test_a_thresholds_override_counts_for_one_call(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of(similarity_threshold=0.85)
    await remember(cache, ask("How do I reset my password?"))
    question = ask("How can I reset my password?")
    assert (await cache.lookup(question, similarity_threshold=1.0)).reason == "below-threshold"
    assert (await cache.lookup(question)).outcome == "hit-semantic"


@pytest.mark.parametrize("threshold", [0, 0.0, 0.1, -1, 1.01, 90, float("nan")])
async def test_what_cannot_be_a_similarity_is_refused(cache_of: CacheOf, ask: Ask, threshold: float) -> None:
    """0 is neither "the default" (redis-vl #649) nor a distance (langchain-redis #22)."""
    with pytest.raises(CacheError, match="cosine similarity"):
        cache_of(similarity_threshold=threshold)
    with pytest.raises(CacheError, match="cosine similarity"):
        await cache_of().lookup(ask("What is the capital of France?"), similarity_threshold=threshold)


@pytest.mark.parametrize("option", ["ttl_s", "max_mb", "num_candidates", "max_answer_kb", "embed_timeout_s"])
def test_an_option_that_cannot_be_meant_is_refused(option: str) -> None:
    with pytest.raises(CacheError, match=option):
        SemanticCache(CacheOptions(**{option: 0}), None)  # type: ignore[arg-type]
