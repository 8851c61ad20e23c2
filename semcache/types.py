"""What crosses the cache's border. Imports neither torch nor FAISS, nor numpy."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from semcache.vector import Vector, Vectors

Outcome = Literal["hit-exact", "hit-semantic", "miss", "bypass"]


class CacheOptions(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True
    semantic: bool = True
    similarity_threshold: float = 0.95  # cosine, in [0, 1]
    ttl_s: float = 86_400.0
    max_mb: int = 256  # budget of the stored answers and vectors together; least recently used go first
    num_candidates: int = 8
    max_answer_kb: int = 1024  # a larger answer is not stored
    min_content_words: int = 2  # a text with fewer is answered by the exact tier only
    embed_timeout_s: float = 0.5  # an embedder slower than this costs the request its semantic tier, nothing else


class Question(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A request as the cache sees it.

    `partition` separates everything that may never share an answer (tenant, namespace, model, system prompt, earlier
    turns, sampling fields, ...); `exact_key` is the digest of the whole; `text` is what the semantic tier embeds,
    empty when only the exact tier may answer. `owner` is whose answers these are, for `clear` alone.
    """

    partition: bytes
    exact_key: bytes
    text: str = ""
    owner: str = ""


class StoredAnswer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A complete answer and what it used. `body` is the non-streamed response, byte for byte."""

    entry_id: str
    question: str
    body: bytes
    model: str
    tier: str
    prompt_tokens: int
    completion_tokens: int
    created_at: float  # seconds since the epoch
    compute_us: int = 0  # of an engine of one's own
    provider: str = ""  # where the model ran


class Lookup(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The outcome, why, and the embedding to hand on (None when nothing was embedded)."""

    outcome: Outcome
    reason: str
    answer: StoredAnswer | None = None
    similarity: float | None = None  # of the served answer's question; on a miss, of the best one that was refused
    threshold: float | None = None  # that it was held against
    embedding: "Vector | None" = None


class CacheStats(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges (entries, vectors, partitions, bytes) and counters since the start."""

    entries: int
    vectors: int
    partitions: int
    bytes: int
    hits_exact: int
    hits_semantic: int
    misses: int
    bypasses: int
    admissions: int
    rejections: dict[str, int]  # reason -> answers that were offered and not stored
    evictions: int  # for room
    expirations: int
    embed_failures: int
    guard_vetoes: dict[str, int]  # reason ("guard:number") -> candidates it refused


class TextEmbedder(Protocol):
    """What the cache needs of an embedder; semcache.embedder.Embedder is one."""

    @property
    def id(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    async def embed(self, texts: Sequence[str]) -> "Vectors": ...
    def fits(self, text: str) -> bool: ...  # False: the end of the text has no influence on the vector


class Verifier(Protocol):
    """A second opinion on a candidate that passed the guards. What it raises counts as a no."""

    async def same_answer(self, question: str, stored_question: str) -> bool: ...


class ExactStore(Protocol):
    """An exact tier shared between processes. One that can't reach its server answers None and forgets."""

    ttl_s: float  # how long it keeps what it is given from now on

    async def get(self, key: bytes) -> bytes | None: ...
    async def put(self, key: bytes, value: bytes) -> None: ...
    async def delete(self, key: bytes) -> None: ...

    async def sweep(self, prefix: bytes, is_dead: Callable[[bytes], bool]) -> int:
        """Deletes what is stored under keys that begin so, if `is_dead` says so of its value. Returns how many."""
