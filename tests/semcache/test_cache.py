import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import numpy as np
import pytest

from semcache.cache import SemanticCache
from semcache.embedder import Embedder
from semcache.errors import CacheError, EmbedderError
from semcache.key import digest
from semcache.types import CacheOptions, Lookup, Question, StoredAnswer

pytestmark = pytest.mark.anyio

Ask = Callable[..., Question]
Reply = Callable[..., StoredAnswer]
CacheOf = Callable[..., SemanticCache]
Remember = Callable[..., Awaitable[StoredAnswer]]


@pytest.fixture
def remember(reply: Reply) -> Remember:
    """Asks, misses, and stores an answer, as a gateway does."""

    async def do(cache: SemanticCache, question: Question, body: bytes = b"", **fields: object) -> StoredAnswer:
        missed = await cache.lookup(question)
        answer = reply(question, body, **fields)
        await cache.admit(question, answer, missed.embedding)
        return answer

    return do


def outcome(found: Lookup) -> tuple[str, str]:
    return found.outcome, found.reason


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


class Broken:
    """An embedder whose vectors never come."""

    id = "broken"
    dimension = 384

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(3600)
        raise AssertionError

    def fits(self, text: str) -> bool:
        return True


@pytest.mark.parametrize(
    ("broken", "reason"), [(Broken(), "embedder-timeout"), (Broken(EmbedderError("no")), "embedder-error")]
)
async def test_a_dead_embedder_costs_little_time_and_leaves_exact_hits(
    broken: Broken, reason: str, ask: Ask, reply: Reply
) -> None:
    cache = SemanticCache(CacheOptions(embed_timeout_s=0.05), broken)
    question = ask("What is the capital of France?")
    await cache.admit(question, reply(question), None)
    started = time.perf_counter()
    reasons = [(await cache.lookup(ask(f"another question, number {number}"))).reason for number in range(20)]
    assert time.perf_counter() - started < 1.0
    assert reasons == [reason] * 3 + ["embedder-resting"] * 17
    assert (await cache.lookup(question)).outcome == "hit-exact"
    assert cache.stats().embed_failures == 3


async def test_another_embedder_starts_a_fresh_index(cache_of: CacheOf, ask: Ask, reply: Reply) -> None:
    """A vector of other weights is never compared with the old ones, whatever its dimension."""
    cache = cache_of()
    first, second = ask("What is the capital of France?"), ask("What is the largest city of Spain?")
    await cache.admit(first, reply(first), np.eye(1, 384, dtype=np.float32)[0])
    renamed = Broken()
    cache._embedder.embedder = renamed  # type: ignore[union-attr]
    await cache.admit(second, reply(second), np.eye(1, 128, dtype=np.float32)[0])
    assert cache._shelf.vectors is not None
    assert (cache._shelf.vectors.embedder_id, cache._shelf.vectors.dimension) == ("broken", 128)
    assert (cache.stats().entries, cache.stats().vectors) == (2, 1)
    with pytest.raises(CacheError, match="shape"):
        await cache.admit(
            ask("What is the oldest city of Spain?"), reply(second, entry_id="x"), np.eye(1, 384, dtype=np.float32)[0]
        )


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
