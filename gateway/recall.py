"""The cache at the gate: what is asked of it, what is replayed from it, what it is given to keep."""

import logging
import time
from typing import Any

from msgspec.structs import replace

from gateway.allowed import narrows_models
from gateway.config import AUTO
from gateway.errors import ApiError
from gateway.house import House, Snapshot
from gateway.ids import new_id
from gateway.ledger.records import RequestRecord
from gateway.passage import Passage
from gateway.question import ask, why_not_cacheable
from gateway.wire.completeness import is_complete
from semcache.types import Lookup, StoredAnswer

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
    passage.lookup = await _look_up(passage, house, snapshot, embed)
    passage.embedding = passage.lookup.embedding
    if passage.lookup.answer is None and passage.directives.only_if_cached:
        raise NotCached("nothing in the cache answers this request, and it asked for cached answers only")


async def _look_up(passage: Passage, house: House, snapshot: Snapshot, embed: bool) -> Lookup:
    config, directives, inference = snapshot.config.cache, passage.directives, passage.inference
    if not config.enabled:
        return Lookup(outcome="bypass", reason="disabled")
    if directives.no_store:
        return Lookup(outcome="bypass", reason="no-store")
    if reason := why_not_cacheable(inference, config.max_temperature):
        return Lookup(outcome="bypass", reason=reason)
    owner = (passage.principal.tenant.id, passage.namespace or "")
    behind = snapshot.catalog.behind(inference.model)
    passage.question = ask(inference, owner=owner, behind=behind, bounds=_bounds(passage))
    lookup = await house.cache.lookup(passage.question, read=not directives.no_cache, embed=embed)
    if lookup.answer is not None and directives.max_age_s is not None:
        age_s = time.time() - lookup.answer.created_at
        if age_s > directives.max_age_s:
            return replace(lookup, outcome="miss", reason="max-age", answer=None)
    return lookup


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
        entry_id=new_id(),
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
