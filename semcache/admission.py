"""What the cache has room for. Whether an answer may be cached at all (complete, no tool calls) is its caller's."""

from semcache.errors import CacheError
from semcache.types import CacheOptions, Question, StoredAnswer

# Memory of an entry beside its bytes: structs, strings' headers, dict and list slots; measured with tracemalloc.
ENTRY_OVERHEAD_BYTES = 1500
MIN_SIMILARITY_THRESHOLD = 0.5  # below it unrelated questions pass: see docs/semcache.md


def check_threshold(threshold: float) -> None:
    """Raises CacheError unless it is a cosine that means something."""
    if not MIN_SIMILARITY_THRESHOLD <= threshold <= 1.0:
        raise CacheError(
            f"similarity_threshold must be a cosine similarity from {MIN_SIMILARITY_THRESHOLD} to 1 (1 is the same"
            f" meaning), not {threshold}; it is not a distance, and lower values would serve answers to unrelated"
            " questions. For exact repeats only, set semantic = false"
        )


def check_options(options: CacheOptions) -> None:
    """Raises CacheError naming the first option that can't be meant."""
    check_threshold(options.similarity_threshold)
    if options.ttl_s <= 0:
        raise CacheError(f"ttl_s must be above 0, not {options.ttl_s}; to switch the cache off, set enabled = false")
    for name in ("max_mb", "num_candidates", "max_answer_kb"):
        if getattr(options, name) < 1:
            raise CacheError(f"{name} must be at least 1, not {getattr(options, name)}")
    if options.min_content_words < 0:
        raise CacheError(f"min_content_words must be at least 0, not {options.min_content_words}")
    if options.embed_timeout_s <= 0:
        raise CacheError(f"embed_timeout_s must be above 0, not {options.embed_timeout_s}")


def entry_bytes(question: Question, answer: StoredAnswer, dimension: int) -> int:
    """What an entry counts against the budget: its bytes, 2 for each of its vector's components, and the overhead."""
    texts = len(answer.body) + len(answer.question.encode()) + len(question.text.encode())
    keys = len(question.partition) + len(question.exact_key)
    return texts + keys + 2 * dimension + ENTRY_OVERHEAD_BYTES


def refusal(answer: StoredAnswer, size: int, options: CacheOptions, now: float) -> str | None:
    """Why an answer is not stored, or None."""
    if not options.enabled:
        return "disabled"
    if not answer.body:
        return "empty-answer"
    if len(answer.body) > options.max_answer_kb * 1024 or size > options.max_mb * 1024 * 1024:
        return "answer-too-large"
    if answer.created_at + options.ttl_s <= now:
        return "expired"
    return None
