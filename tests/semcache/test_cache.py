"""Which questions the cache answers: repeats, paraphrases of one partition, nothing that differs in a detail."""

import pytest

from semcache.cache import SemanticCache
from semcache.embedder import Embedder
from semcache.key import digest
from semcache.types import CacheOptions
from tests.semcache.conftest import Ask, CacheOf, Remember, outcome

pytestmark = pytest.mark.anyio


async def test_an_exact_repeat_hits_and_embeds_nothing(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of()
    answer = await remember(cache, ask("What is the capital of France?"))
    found = await cache.lookup(ask("What is the capital of France?"))
    assert outcome(found) == ("hit-exact", "exact")
    assert found.answer == answer
    assert found.embedding is None


async def test_a_paraphrase_hits_and_says_how_near_it_is(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of(similarity_threshold=0.9)
    answer = await remember(cache, ask("How do I reset my password?"))
    found = await cache.lookup(ask("How can I reset my password?"))
    assert outcome(found) == ("hit-semantic", "semantic")
    assert found.answer == answer
    assert found.similarity is not None
    assert 0.9 < found.similarity < 1.0
    assert found.threshold == 0.9
    assert found.embedding is not None


async def test_paraphrases_hit_within_one_partition_and_never_across(
    cache_of: CacheOf, ask: Ask, remember: Remember
) -> None:
    """Isolation that makes every hit impossible would pass the second half alone (litellm #29086)."""
    cache = cache_of(similarity_threshold=0.85)
    await remember(cache, ask("What is the capital of France?", "acme", "gpt-4o", "system prompt"))
    other_words = "Tell me the capital of France."
    assert (await cache.lookup(ask(other_words, "acme", "gpt-4o", "system prompt"))).outcome == "hit-semantic"
    for partition in (
        ("rival", "gpt-4o", "system prompt"),
        ("acme", "gpt-4o-mini", "system prompt"),
        ("acme", "gpt-4o", "another system prompt"),
    ):
        assert outcome(await cache.lookup(ask(other_words, *partition))) == ("miss", "empty")
        assert (await cache.lookup(ask("What is the capital of France?", *partition))).outcome == "miss"


async def test_the_last_message_alone_is_not_the_question(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of()
    await remember(cache, ask("yes, cancel the order now", "history: order 1"))
    assert (await cache.lookup(ask("yes, cancel the order now", "history: order 2"))).outcome == "miss"


async def test_on_and_off_are_told_apart(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of(similarity_threshold=0.85)
    answer = await remember(cache, ask("How do I turn on dark mode?"))
    off = await cache.lookup(ask("How do I turn off dark mode?"))
    assert outcome(off) == ("miss", "guard:antonym")
    assert off.similarity is not None
    assert off.similarity > 0.85
    switched = await cache.lookup(ask("How do I switch dark mode on?"))
    assert switched.answer == answer


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("What is 12*13 please?", "What is 12*14 please?"),
        ("What is the status of order 48213?", "What is the status of order 48231?"),
        ("Can I change a refundable booking?", "Can I change a non-refundable booking?"),
        ("Convert my document from Word to PDF", "Convert my document from PDF to Word"),
        ("Write a short poem about the sea in French", "Write a short poem about the sea in German"),
    ],
)
async def test_another_detail_is_a_miss(
    cache_of: CacheOf, ask: Ask, remember: Remember, stored: str, asked: str
) -> None:
    cache = cache_of(similarity_threshold=0.5)
    await remember(cache, ask(stored))
    found = await cache.lookup(ask(asked))
    assert found.outcome == "miss"
    assert found.reason.startswith("guard:")


async def test_shared_function_words_are_not_enough(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    """GPTCache #388: the noun must count."""
    cache = cache_of(similarity_threshold=0.5)
    await remember(cache, ask("what is the function of money"))
    assert (await cache.lookup(ask("can you explain what function of TV is?"))).outcome == "miss"


async def test_very_short_texts_are_answered_by_exact_repeats_only(
    cache_of: CacheOf, ask: Ask, remember: Remember
) -> None:
    cache = cache_of(similarity_threshold=0.5)
    await remember(cache, ask("hello"))
    assert outcome(await cache.lookup(ask("how are u"))) == ("miss", "short-text")
    assert outcome(await cache.lookup(ask("hello!"))) == ("miss", "short-text")
    assert (await cache.lookup(ask("hello"))).outcome == "hit-exact"
    assert cache.stats().vectors == 0


async def test_a_refused_first_candidate_does_not_end_the_search(
    cache_of: CacheOf, ask: Ask, remember: Remember
) -> None:
    cache = cache_of(similarity_threshold=0.8)
    await remember(cache, ask("How do I turn off dark mode in the settings?"))
    reworded = "Please explain to me in which way I can switch dark mode on in the settings, thanks"
    right = await remember(cache, ask(reworded))
    found = await cache.lookup(ask("How do I turn on dark mode in the settings?"))
    nearest_first = [entry.answer.question for entry, _ in cache._shelf.nearest(digest(), found.embedding, 2)]
    assert "off" in nearest_first[0]
    assert found.answer == right


class Opinion:
    def __init__(self, says: object) -> None:
        self.says = says

    async def same_answer(self, question: str, stored_question: str) -> bool:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("says", "reason"),
    [(True, "semantic"), (False, "verifier"), (None, "verifier"), (RuntimeError("judge away"), "verifier-error")],
)
async def test_a_verifier_must_say_yes(
    embedder: Embedder, ask: Ask, remember: Remember, says: object, reason: str
) -> None:
    cache = SemanticCache(CacheOptions(embed_timeout_s=60, similarity_threshold=0.85), embedder, verifier=Opinion(says))
    await remember(cache, ask("How do I reset my password?"))
    assert (await cache.lookup(ask("How can I reset my password?"))).reason == reason


async def test_a_text_that_the_model_cannot_read_to_its_end_is_not_matched(
    cache_of: CacheOf, ask: Ask, remember: Remember
) -> None:
    cache = cache_of()
    beginning = "the same long document " * 100
    await remember(cache, ask(beginning + "and what is its author called"))
    found = await cache.lookup(ask(beginning + "and how many pages does it have"))
    assert outcome(found) == ("miss", "long-text")
    assert found.embedding is not None


async def test_a_far_question_is_below_the_threshold(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of()
    await remember(cache, ask("How do I reset my password?"))
    found = await cache.lookup(ask("Which wine goes with roasted duck?"))
    assert outcome(found) == ("miss", "below-threshold")
    assert found.similarity is not None
    assert found.similarity < 0.5


async def test_counters_add_up(cache_of: CacheOf, ask: Ask, remember: Remember) -> None:
    cache = cache_of(similarity_threshold=0.85)
    await remember(cache, ask("How do I turn on dark mode?"))
    await cache.lookup(ask("How do I turn on dark mode?"))
    await cache.lookup(ask("How can I turn on dark mode?"))
    await cache.lookup(ask("How do I turn off dark mode?"))
    await cache.lookup(ask("How do I turn on dark mode?"), read=False)
    stats = cache.stats()
    assert (stats.hits_exact, stats.hits_semantic, stats.misses, stats.bypasses) == (1, 1, 2, 1)
    assert (stats.admissions, stats.entries, stats.vectors, stats.partitions) == (1, 1, 1, 1)
    assert stats.guard_vetoes == {"guard:antonym": 1}
