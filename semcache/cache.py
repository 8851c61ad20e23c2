"""The semantic cache: exact key, then nearest questions, then guards. Knows nothing of HTTP, tenants or prices.

All state lives on one event loop. A look-up never fails for the cache's own sake: whatever is away or slow (embedder,
shared store, verifier) makes it a miss, and `Lookup.reason` says which.
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from semcache.admission import check_options, check_threshold, entry_bytes, refusal
from semcache.errors import StoreError
from semcache.guards import veto
from semcache.loading import restore, without_collector
from semcache.patience import PatientEmbedder
from semcache.shelf import Entry, Shelf
from semcache.text import Text
from semcache.types import (
    CacheOptions,
    CacheStats,
    ExactStore,
    Lookup,
    Outcome,
    Question,
    StoredAnswer,
    TextEmbedder,
    Verifier,
)

if TYPE_CHECKING:
    from semcache.store.write_behind import WriteBehind
    from semcache.vector import Vector

log = logging.getLogger(__name__)

MAX_REVOKED = 10_000  # invalidated ids that are remembered against copies in the shared store
MB = 1024 * 1024
EXACT_MISS = Lookup(outcome="miss", reason="exact-only")

_decode_answer = msgspec.msgpack.Decoder(StoredAnswer).decode
_encode_answer = msgspec.msgpack.Encoder().encode


class SemanticCache:
    """Exact tier of this process, exact tier shared between processes, semantic tier; see docs/semcache.md."""

    def __init__(
        self,
        options: CacheOptions,
        embedder: TextEmbedder | None,
        shared: ExactStore | None = None,
        file: "WriteBehind | None" = None,
        *,
        verifier: Verifier | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without an embedder only exact repeats are answered. Raises CacheError: bad options, or FAISS missing.

        `file`, started, keeps the entries for the next process; `load` brings back what the last one left.
        """
        self._embedder = PatientEmbedder(embedder) if embedder is not None else None
        self._options = self._checked(options)
        self._shelf = Shelf(options.max_mb * MB, self._has_left)
        self._shared = shared
        self._file = file
        self._verifier = verifier
        self._clock = clock
        self._revoked: OrderedDict[str, None] = OrderedDict()
        self._cleared_at: dict[str | None, float] = {}  # by owner; None: of all
        self._deletions: set[asyncio.Task[object]] = set()
        self._counts: Counter[str] = Counter()  # outcomes, admissions, expirations
        self._rejections: Counter[str] = Counter()
        self._vetoes: Counter[str] = Counter()

    async def load(self) -> None:
        """Brings back what the file holds, before the first look-up. One that can't be read to its end is emptied."""
        if self._file is None:
            return
        embedder = self._embedder.embedder if self._embedder is not None and self._options.semantic else None
        embedder_id, dimension = (embedder.id, embedder.dimension) if embedder is not None else ("", 0)
        forget = self._file.forget
        try:
            with without_collector():
                async for chunk in self._file.load():
                    restore(self._shelf, chunk, self._options, self._clock(), embedder_id, dimension, forget)
        except StoreError as error:
            log.error("the cache's file can't be read and begins anew: %s", error)
            self._file.wipe()

    async def lookup(
        self,
        question: Question,
        *,
        read: bool = True,
        embed: bool = True,
        similarity_threshold: float | None = None,
    ) -> Lookup:
        """What is known of the question.

        With `read=False` ("no-cache") there is no hit. Unless there is an exact hit or no text, the result carries the
        text's embedding for others to use; `embed=False` computes it only where the cache itself needs it, be it to
        look or to admit the answer.
        `similarity_threshold`, a cosine, overrides the option for this call; CacheError if out of range, 0 included.
        """
        if similarity_threshold is not None:
            check_threshold(similarity_threshold)
        result = await self._lookup(question, read, embed, similarity_threshold)
        self._counts[result.outcome] += 1
        return result

    async def _lookup(self, question: Question, read: bool, embed: bool, override: float | None) -> Lookup:
        expired = False
        if self._options.enabled and read:
            entry = self._shelf.by_key(question.exact_key)
            expired = entry is not None and self._dropped_as_expired(entry)
            if entry is not None and not expired:
                self._shelf.touch(entry)
                return Lookup(outcome="hit-exact", reason="exact", answer=entry.answer)
            if self._shared is not None and (hit := await self._exact_shared(question, self._shared)) is not None:
                return hit
        refused = self._refused(question, read)
        if refused == "exact-only" and not embed:
            found = EXACT_MISS
        else:
            found = await self._beyond_exact(question, refused, embed, override)
        if expired and found.outcome == "miss":
            return msgspec.structs.replace(found, reason="expired")
        return found

    async def _beyond_exact(
        self, question: Question, refused: str | None, embed: bool, override: float | None
    ) -> Lookup:
        """`refused`: why the semantic tier may not answer, if it may not; the embedding may be wanted all the same."""
        outcome: Outcome = "bypass" if refused in ("disabled", "no-cache") else "miss"
        wanted = question.text if embed else refused == "no-cache" and self._lacks_vector(question)
        if refused is not None and not wanted:
            return Lookup(outcome=outcome, reason=refused)
        if self._embedder is None:
            return Lookup(outcome=outcome, reason=refused or "no-embedder")
        vector = await self._embedder.embed(question.text, self._options.embed_timeout_s)
        if isinstance(vector, str):
            return Lookup(outcome=outcome, reason=refused or vector)
        if refused is not None:
            return Lookup(outcome=outcome, reason=refused, embedding=vector)
        threshold = self._options.similarity_threshold if override is None else override
        return await self._semantic(question, vector, threshold)

    async def embed(self, text: str) -> "Vector | None":
        """The (d,) embedding of a text within the time budget; None if there is none to be had."""
        if self._embedder is None or not text:
            return None
        vector = await self._embedder.embed(text, self._options.embed_timeout_s)
        return None if isinstance(vector, str) else vector

    def _refused(self, question: Question, read: bool) -> str | None:
        """Why only the exact tier, or none, may answer the question; None if the semantic tier may."""
        if not self._options.enabled:
            return "disabled"
        if not read:
            return "no-cache"
        if not self._options.semantic:
            return "exact-only"
        if not question.text:
            return "no-text"
        if self._embedder is None:
            return "no-embedder"
        if not self._embedder.embedder.fits(question.text):  # first: it bounds the work of all that follow
            return "long-text"
        if len(Text(question.text).content) < self._options.min_content_words:
            return "short-text"
        return None

    def _lacks_vector(self, question: Question) -> bool:
        """The semantic tier may keep the question, and has no vector of it yet."""
        if self._embedder is None or self._refused(question, read=True) is not None:
            return False
        return self._shelf.vector_of(question, self._embedder.embedder.id) is None

    async def _exact_shared(self, question: Question, shared: ExactStore) -> Lookup | None:
        raw = await shared.get(_shared_key(question))
        answer = self._usable(raw, question.owner) if raw is not None else None
        if answer is None:
            return None
        size = entry_bytes(question, answer, 0)
        if refusal(answer, size, self._options, self._clock()) is None:
            self._shelf.add(question, answer, size)
        return Lookup(outcome="hit-exact", reason="exact-shared", answer=answer)

    def _usable(self, raw: bytes, owner: str) -> StoredAnswer | None:
        """An answer from the shared store, unless it is too old, invalidated, or another version's encoding."""
        try:
            answer = _decode_answer(raw)
        except msgspec.MsgspecError:  # as good as absent: the next answer overwrites it
            return None
        if self._is_expired(answer) or answer.entry_id in self._revoked or self._is_cleared(answer, owner):
            return None
        return answer

    async def _semantic(self, question: Question, vector: "Vector", threshold: float) -> Lookup:
        """The nearest stored question that is near enough, alive, and passes guards and verifier."""
        nearest = self._shelf.nearest(question.partition, vector, self._options.num_candidates)
        if not nearest:
            return Lookup(outcome="miss", reason="empty", embedding=vector)
        asked = Text(question.text)
        reason, best = "below-threshold", nearest[0][1]
        for entry, similarity in nearest:
            if similarity < threshold:
                break
            if entry not in self._shelf:  # evicted while the verifier was asked about another one
                continue
            refused = await self._refused_candidate(asked, entry)
            if refused is None:
                self._shelf.touch(entry)
                return Lookup(
                    outcome="hit-semantic",
                    reason="semantic",
                    answer=entry.answer,
                    similarity=similarity,
                    threshold=threshold,
                    embedding=vector,
                )
            if reason == "below-threshold":
                reason, best = refused, similarity
        return Lookup(outcome="miss", reason=reason, similarity=best, threshold=threshold, embedding=vector)

    async def _refused_candidate(self, asked: Text, entry: Entry) -> str | None:
        """Why a stored question near enough may not answer after all."""
        if self._dropped_as_expired(entry):
            return "expired"
        refused = veto(asked, Text(entry.question.text))
        if refused is None and self._verifier is not None:
            try:
                same = await self._verifier.same_answer(asked.text, entry.question.text)
                refused = None if same is True else "verifier"
            except Exception:  # somebody else's code: whatever goes wrong in it is not a yes
                refused = "verifier-error"
        if refused is not None:
            self._vetoes[refused] += 1
        return refused

    async def admit(self, question: Question, answer: StoredAnswer, embedding: "Vector | None") -> str:
        """Stores an answer, in place of one to the same exact key. Returns "stored", or why it was not.

        `embedding` is (d,) float32 of length 1, as `lookup` gave it; CacheError for another shape or length. None
        keeps the vector of the entry that it replaces.
        """
        if self._refused(question, read=True) is not None or self._embedder is None:
            embedding = None
        elif embedding is None:
            embedding = self._shelf.vector_of(question, self._embedder.embedder.id)
        size = entry_bytes(question, answer, embedding.shape[0] if embedding is not None else 0)
        refused = refusal(answer, size, self._options, self._clock())
        if refused is not None:
            self._rejections[refused] += 1
            return refused
        embedder_id = self._embedder.embedder.id if self._embedder is not None else ""
        entry = self._shelf.add(question, answer, size, embedding, embedder_id)
        self._counts["admissions"] += 1
        if self._file is not None:
            self._file.put(entry.number, question, answer, embedding, embedder_id)
        if self._shared is not None:
            await self._shared.put(_shared_key(question), _encode_answer(answer))
        return "stored"

    def invalidate(self, entry_id: str) -> bool:
        """Forgets an entry here and in the shared store; a copy that still comes from there is refused.

        False if this process does not hold it.
        """
        self._revoked[entry_id] = None
        if len(self._revoked) > MAX_REVOKED:
            self._revoked.popitem(last=False)
        entry = self._shelf.by_id(entry_id)
        if entry is None:
            return False
        self._shelf.remove(entry)
        if self._file is not None:
            self._file.clean(thoroughly=False)
        if self._shared is not None:
            self._soon(self._shared.delete(_shared_key(entry.question)))
        return True

    def clear(self, owner: str | None = None, before: float | None = None) -> int:
        """Forgets what was stored before now, or before a time: of one owner, or everything. Returns how much it was.

        What the shared store got before that is not used by this process any more; one owner's is deleted there.
        """
        moment = self._clock() if before is None else before
        if self._shared is not None and owner is not None and moment + self._options.ttl_s > self._clock():
            self._soon(self._shared.sweep(_shared_prefix(owner), lambda raw: _is_before(raw, moment)))
        self._cleared_at[owner] = max(moment, self._cleared_at.get(owner, moment))
        num_gone = self._shelf.clear(
            lambda entry: owner in (None, entry.question.owner) and entry.answer.created_at <= moment
        )
        if self._file is not None:
            self._file.clean(thoroughly=True)  # even if nothing was left: its traces may be
        return num_gone

    def reconfigure(self, options: CacheOptions) -> None:
        """Takes over new options; a smaller budget evicts at once. Raises CacheError and keeps the old ones."""
        self._options = self._checked(options)
        self._shelf.resize(options.max_mb * MB)
        if self._shared is not None:
            self._shared.ttl_s = options.ttl_s

    async def aclose(self) -> None:
        """Waits for what is still on its way, and closes the file."""
        await asyncio.gather(*self._deletions)
        if self._file is not None:
            await self._file.aclose()

    async def settle(self) -> None:
        """Returns once what was forgotten is gone from the file and the shared store, as far as they can be reached."""
        await asyncio.gather(*self._deletions)
        if self._file is not None:
            await self._file.flush()

    def stats(self) -> CacheStats:
        vectors = self._shelf.vectors
        return CacheStats(
            entries=len(self._shelf),
            vectors=len(vectors) if vectors is not None else 0,
            partitions=vectors.num_partitions if vectors is not None else 0,
            bytes=self._shelf.bytes,
            hits_exact=self._counts["hit-exact"],
            hits_semantic=self._counts["hit-semantic"],
            misses=self._counts["miss"],
            bypasses=self._counts["bypass"],
            admissions=self._counts["admissions"],
            rejections=dict(self._rejections),
            evictions=self._shelf.num_evictions,
            expirations=self._counts["expirations"],
            embed_failures=self._embedder.num_failures if self._embedder is not None else 0,
            guard_vetoes=dict(self._vetoes),
        )

    def _has_left(self, entry: Entry) -> None:
        if self._file is not None:
            self._file.forget(entry.number)

    def _soon(self, deletion: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(deletion)
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    def _checked(self, options: CacheOptions) -> CacheOptions:
        check_options(options)
        if self._embedder is not None and options.semantic:
            from semcache.index import require_faiss  # numpy comes with it

            require_faiss()
        return options

    def _is_expired(self, answer: StoredAnswer) -> bool:
        return answer.created_at + self._options.ttl_s <= self._clock()

    def _is_cleared(self, answer: StoredAnswer, owner: str) -> bool:
        moments = (self._cleared_at[each] for each in (None, owner) if each in self._cleared_at)
        return answer.created_at < max(moments, default=float("-inf"))

    def _dropped_as_expired(self, entry: Entry) -> bool:
        if not self._is_expired(entry.answer):
            return False
        self._shelf.remove(entry)
        self._counts["expirations"] += 1
        return True


def _shared_prefix(owner: str) -> bytes:
    return owner.encode() + b":" if owner else b""


def _shared_key(question: Question) -> bytes:
    """Under its owner's name, so that all that is one's can be found and deleted."""
    return _shared_prefix(question.owner) + question.exact_key


def _is_before(raw: bytes, moment: float) -> bool:
    """What can't be read is of no use to anybody."""
    try:
        return _decode_answer(raw).created_at <= moment
    except msgspec.DecodeError:
        return True
