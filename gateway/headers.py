"""What every answer says about itself: the x-tollhouse-* headers."""

from gateway.answer import Headers, encode_headers
from gateway.ledger.records import RequestRecord
from gateway.money import dollars
from gateway.passage import Passage
from gateway.wire.messages.errors import REQUEST_ID
from gateway.wire.messages.request import API as MESSAGES


def identify(passage: Passage) -> list[tuple[str, str]]:
    """The request's id, once more under the name that clients of its API know."""
    pairs = [("x-request-id", passage.id)]
    if passage.inference.api == MESSAGES:
        pairs.append((REQUEST_ID, passage.id))
    return pairs


def describe(passage: Passage) -> Headers:
    """Known before the first byte: cache, route, model, attempts so far."""
    lookup, decision = passage.lookup, passage.decision
    pairs = [*identify(passage), ("x-tollhouse-cache", lookup.outcome)]
    if lookup.reason:
        pairs.append(("x-tollhouse-cache-reason", lookup.reason))
    if lookup.similarity is not None:
        pairs.append(("x-tollhouse-similarity", f"{lookup.similarity:.4f}"))
    if lookup.answer is not None:
        pairs.append(("x-tollhouse-cache-entry", lookup.answer.entry_id))
        pairs.append(("x-tollhouse-model", lookup.answer.model))
        if lookup.answer.tier:
            pairs.append(("x-tollhouse-tier", lookup.answer.tier))
    elif decision is not None:
        if decision.tier:
            pairs.append(("x-tollhouse-tier", decision.tier))
        if passage.served_model:
            pairs.append(("x-tollhouse-model", passage.served_model))
    if decision is not None:
        pairs.append(("x-tollhouse-route", decision.reason))
    pairs.append(("x-tollhouse-attempts", str(passage.num_attempts)))
    return [*encode_headers(pairs), *passage.ticket.headers()]


def settle_up(record: RequestRecord) -> Headers:
    """Known once the answer is whole: what it cost and what it saved."""
    saved = record.saved_by_cache_nanousd + record.saved_by_routing_nanousd
    return encode_headers(
        [("x-tollhouse-cost-usd", dollars(record.cost_nanousd)), ("x-tollhouse-saved-usd", dollars(saved))]
    )


def settle_up_comment(record: RequestRecord) -> bytes:
    """The same as an SSE comment, which every client skips."""
    saved = record.saved_by_cache_nanousd + record.saved_by_routing_nanousd
    return f": tollhouse cost-usd={dollars(record.cost_nanousd)} saved-usd={dollars(saved)}\n\n".encode()
