"""The cache at the gate: what is asked of it, what is replayed from it, what it is given to keep."""

import time

import msgspec
from msgspec.structs import replace

from gateway.errors import ApiError
from gateway.house import House, Snapshot
from gateway.ids import new_id
from gateway.ledger.records import RequestRecord
from gateway.passage import Passage
from gateway.question import ask, why_not_cacheable
from semcache.types import Lookup, StoredAnswer


class NotCached(ApiError):
    """`cache-control: only-if-cached` found nothing (RFC 9111, section 5.2.1.7)."""

    status = 504
    type = "cache_miss"
    code = "not_cached"


async def look_up(passage: Passage, house: House, snapshot: Snapshot, *, embed: bool) -> Lookup:
    """Asks the cache as the request's own directives allow; a bypass says why. `embed`: the router wants the vector."""
    config, directives, inference = snapshot.config.cache, passage.directives, passage.inference
    if not config.enabled:
        return Lookup(outcome="bypass", reason="disabled")
    if directives.no_store:
        return Lookup(outcome="bypass", reason="no-store")
    if reason := why_not_cacheable(inference, config.max_temperature):
        return Lookup(outcome="bypass", reason=reason)
    owner = (passage.principal.tenant.id, passage.namespace or "")
    passage.question = ask(inference, owner=owner, bounds=passage.tier_wanted)
    lookup = await house.cache.lookup(passage.question, read=not directives.no_cache, embed=embed)
    if lookup.answer is not None and directives.max_age_s is not None:
        age_s = time.time() - lookup.answer.created_at
        if age_s > directives.max_age_s:
            lookup = replace(lookup, outcome="miss", reason="max-age", answer=None)
    if lookup.answer is None and directives.only_if_cached:
        raise NotCached("nothing in the cache answers this request, and it asked for cached answers only")
    return lookup


def may_keep(passage: Passage) -> bool:
    """A request that may be cached and was not answered from the cache; "no-cache" is stored anew."""
    return passage.question is not None and passage.lookup.answer is None


async def keep(passage: Passage, house: House, body: bytes, record: RequestRecord) -> None:
    """Offers a whole answer to the cache; only complete, plain ones are taken."""
    if passage.question is None or not may_keep(passage) or not _is_complete(body):
        return
    answer = StoredAnswer(
        entry_id=new_id(),
        question=passage.question.text,
        body=body,
        model=record.model or passage.inference.model,
        tier=record.tier or "",
        prompt_tokens=record.usage.prompt_tokens,
        completion_tokens=record.usage.completion_tokens,
        cost_nanousd=record.cost_nanousd,
        created_at=time.time(),
    )
    await house.cache.admit(passage.question, answer, passage.embedding)


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[msgspec.Raw] | None = None
    function_call: msgspec.Raw | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    message: _Message | None = None
    text: str | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice] = []
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Body).decode


def _is_complete(body: bytes) -> bool:
    """Never truncated, filtered, failed or empty answers, nor tool calls."""
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return answer.error is None and bool(answer.choices) and all(map(_choice_is_complete, answer.choices))


def _choice_is_complete(choice: _Choice) -> bool:
    if choice.finish_reason != "stop":
        return False
    if choice.message is None:
        return bool(choice.text)
    return bool(choice.message.content) and not choice.message.tool_calls and choice.message.function_call is None
