"""What every answer says about itself: the x-tollhouse-* headers."""

from functools import lru_cache

from gateway.answer import Headers, encode_headers
from gateway.ledger.records import RequestRecord
from gateway.money import dollars
from gateway.passage import Passage
from gateway.wire.messages.errors import REQUEST_ID
from gateway.wire.messages.request import API as MESSAGES


def identify(passage: Passage) -> Headers:
    """The request's id, once more under the name that clients of its API know."""
    id = passage.id.encode()
    if passage.inference.api == MESSAGES:
        return [(b"x-request-id", id), (REQUEST_ID.encode(), id)]
    return [(b"x-request-id", id)]


def describe(passage: Passage) -> Headers:
    """Known before the first byte: cache, route, model, attempts so far."""
    lookup, decision = passage.lookup, passage.decision
    answer, similarity = lookup.answer, lookup.similarity
    route = model = tier = None
    if decision is not None:
        route, model, tier = decision.reason, passage.served_model, decision.tier
    if answer is not None:
        model, tier = answer.model, answer.tier
    told = identify(passage)
    told += _outcome(lookup.outcome, lookup.reason, model, tier, route, passage.num_attempts)
    if similarity is not None:
        told.append((b"x-tollhouse-similarity", b"%.4f" % similarity))
    if answer is not None:
        told += encode_headers([("x-tollhouse-cache-entry", answer.entry_id)])
    told += passage.ticket.headers()
    return told


@lru_cache(maxsize=1024)
def _outcome(
    cache: str, cache_reason: str | None, model: str | None, tier: str | None, route: str | None, num_attempts: int
) -> tuple[tuple[bytes, bytes], ...]:
    """What many requests have in common."""
    pairs = [("x-tollhouse-cache", cache), ("x-tollhouse-attempts", str(num_attempts))]
    told = {"cache-reason": cache_reason, "model": model, "tier": tier}
    pairs += [(f"x-tollhouse-{name}", value) for name, value in told.items() if value]
    if route is not None:
        pairs.append(("x-tollhouse-route", route))
    return tuple(encode_headers(pairs))


def settle_up(record: RequestRecord) -> Headers:
    """Known once the answer is whole: what it cost and what it saved."""
    saved = record.saved_by_cache_nanousd + record.saved_by_routing_nanousd
    return [
        (b"x-tollhouse-cost-usd", dollars(record.cost_nanousd).encode()),
        (b"x-tollhouse-saved-usd", dollars(saved).encode()),
    ]


def settle_up_comment(record: RequestRecord) -> bytes:
    """The same as an SSE comment, which every client skips."""
    saved = record.saved_by_cache_nanousd + record.saved_by_routing_nanousd
    return f": tollhouse cost-usd={dollars(record.cost_nanousd)} saved-usd={dollars(saved)}\n\n".encode()
