"""What crosses the cache's border. Imports neither torch nor FAISS."""

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]  # (d,), L2-normalised

Outcome = Literal["hit-exact", "hit-semantic", "miss", "bypass"]


class CacheOptions(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True
    semantic: bool = True
    similarity_threshold: float = 0.95  # cosine, in [0, 1]
    ttl_s: float = 86_400.0
    max_mb: int = 256  # budget of the stored answers and vectors together; least recently used go first
    num_candidates: int = 8


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the cache sees it.

    `partition` separates everything that may never share an answer (tenant, namespace, model, system prompt, earlier
    turns, sampling fields, ...); `exact_key` is the digest of the whole; `text` is what the semantic tier embeds,
    empty when only the exact tier may answer.
    """

    partition: bytes
    exact_key: bytes
    text: str = ""


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A complete answer and what it cost. `body` is the non-streamed response, byte for byte."""

    entry_id: str
    question: str
    body: bytes
    model: str
    tier: str
    prompt_tokens: int
    completion_tokens: int
    cost_nanousd: int  # what a hit saves
    created_at: float  # seconds since the epoch


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome, why, and the embedding to hand on (None when nothing was embedded)."""

    outcome: Outcome
    reason: str
    answer: StoredAnswer | None = None
    similarity: float | None = None
    embedding: Vector | None = None
