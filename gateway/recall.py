"""The cache at the gate: what is asked of it, what is replayed from it, what it is given to keep."""

import logging
import time
from typing import Any

from msgspec.structs import replace

from gateway.allowed import narrows_models
from gateway.config import AUTO
from gateway.errors import ApiError
from gateway.house import House, Snapshot
from gateway.ledger.records import RequestRecord
from gateway.passage import Passage
from gateway.question import ask, why_not_cacheable
from gateway.wire.completeness import is_complete
from semcache.types import Lookup, Question, StoredAnswer

log = logging.getLogger("tollhouse.cache")


class NotCached(ApiError):
    """`cache-control: only-if-cached` found nothing (RFC 9111, section 5.2.1.7)."""

    status = 504
    type = "cache_miss"
    code = "not_cached"


async def look_up(passage: Passage, house: House, snapshot: Snapshot, *, embed: bool) -> None:
    """Asks the cache as the request's own directives allow; a bypass says why. `embed`: the router wants the vector.

    Raises NotCached where only a cached answer was wanted.
    """
    reason = _why_not_asked(passage, snapshot)
    if reason is not None:
        passage.lookup = Lookup(outcome="bypass", reason=reason)
    else:
        passage.question = _question(passage, snapshot)
        read = not passage.directives.no_cache
        passage.lookup = _if_fresh(passage, await house.cache.lookup(passage.question, read=read, embed=embed))
        passage.embedding = passage.lookup.embedding
    if passage.directives.only_if_cached and passage.lookup.answer is None:
        raise NotCached("nothing in the cache answers this request, and it asked for cached answers only")


def _why_not_asked(passage: Passage, snapshot: Snapshot) -> str | None:
    config = snapshot.config.cache
    if not config.enabled:
        return "disabled"
    if passage.directives.no_store:
        return "no-store"
    return why_not_cacheable(passage.inference, config.max_temperature)


def _question(passage: Passage, snapshot: Snapshot) -> Question:
    inference = passage.inference
    owner = (passage.principal.tenant.id, passage.namespace or "")
    return ask(inference, owner=owner, behind=snapshot.catalog.behind(inference.model), bounds=_bounds(passage))


def _if_fresh(passage: Passage, lookup: Lookup) -> Lookup:
    """A miss where the client wants nothing so old."""
    max_age_s = passage.directives.max_age_s
    if lookup.answer is None or max_age_s is None or time.time() - lookup.answer.created_at <= max_age_s:
        return lookup
    return replace(lookup, outcome="miss", reason="max-age", answer=None)


def _bounds(passage: Passage) -> Any:
    """What narrows `auto`: a tier asked for, and what the key may use; other models' answers answer other questions."""
    scope = passage.principal.key.scope
    if passage.inference.model != AUTO or scope is None or not narrows_models(scope):
        return passage.tier_wanted
    return [passage.tier_wanted, scope.models, scope.tiers]


def may_keep(passage: Passage) -> bool:
    """A request that may be cached and was not answered from the cache; "no-cache" is stored anew.

    What a fallback answered to `auto` is not kept: it would outlive the outage that it was made in.
    """
    if passage.question is None or passage.lookup.answer is not None:
        return False
    decision = passage.decision
    is_fallback = decision is not None and passage.served_model != decision.candidates[0]
    return not (is_fallback and passage.inference.model == AUTO)


async def keep(passage: Passage, house: House, body: bytes, record: RequestRecord) -> None:
    """Offers a whole answer to the cache; only complete ones are taken. Whatever goes wrong, the answer stands."""
    if passage.question is None or not may_keep(passage) or not is_complete(body):
        return
    answer = StoredAnswer(
        entry_id=passage.id,  # of the request that made it
        question=passage.question.text,
        body=body,
        model=record.model or passage.inference.model,
        tier=record.tier or "",
        prompt_tokens=record.usage.prompt_tokens,
        completion_tokens=record.usage.completion_tokens,
        compute_us=record.usage.compute_us,
        provider=record.provider or "",
        created_at=time.time(),
    )
    try:
        await house.cache.admit(passage.question, answer, passage.embedding)
    except Exception:
        log.exception("request %s: its answer could not be stored", passage.id)


def discard(passage: Passage, house: House, answer: StoredAnswer, reason: str) -> None:
    """A stored answer that turned out unusable: it goes, and this look-up was a miss."""
    log.warning("the stored answer %s is discarded: %s", answer.entry_id, reason)
    house.cache.invalidate(answer.entry_id)
    passage.lookup = replace(passage.lookup, outcome="miss", reason="unusable", answer=None)
