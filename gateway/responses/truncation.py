"""`truncation: "auto"`: the oldest of a conversation is left out until the model that is to read it can hold the rest.

Never left out are what system and developer say, the user's last words, and the last item; calls go with their outputs.
"""

from collections.abc import Sequence

import msgspec

from gateway.catalog import Catalog
from gateway.config import AUTO
from gateway.errors import ContextLengthExceeded
from gateway.estimates import BYTES_PER_TOKEN, prompt_tokens
from gateway.house import Snapshot
from gateway.tenants.types import Scope
from gateway.upstream.types import Outbound, Tokenizes
from gateway.wire.inference import Inference
from gateway.wire.responses_api.chat_request import chat_inference
from gateway.wire.responses_api.input_items import Item
from gateway.wire.responses_api.request import Creation

ATTACHED = ("image_url", "file_data")  # parts' fields whose bytes say nothing about tokens
TARGET = 0.95  # of the room: each try costs another count, and tokens are not as long everywhere


async def fitted(
    snapshot: Snapshot, scope: Scope | None, creation: Creation, items: list[Item], *, tier: str | None
) -> list[Item]:
    """The conversation, or what of it fits. Unchanged where nobody knows how much the model holds.

    Raises InvalidRequestError for what no model could read.
    """
    inference = chat_inference(creation, items)
    reader = _reader(snapshot, scope, inference, tier)
    if reader is None:
        return items
    model, context = reader
    answer = creation.wants.max_output_tokens or min(snapshot.catalog.max_output_tokens(model), context // 4)
    room = context - answer
    while len(inference.raw) > room and (num_tokens := await _count(snapshot.catalog, model, inference, items)) > room:
        share = 1 - TARGET * max(room, 0) / num_tokens
        shorter = without_oldest(items, share * sum(map(_size, items)))
        if len(shorter) == len(items):
            break  # the model, or its provider, says that it is too long
        items, inference = shorter, chat_inference(creation, shorter)
    return items


def without_oldest(items: Sequence[Item], num_bytes: float) -> list[Item]:
    """Shorter by at least so many bytes, as far as anything may go. What is left begins with a user's words."""
    last_words = max((place for place, item in enumerate(items) if _is_users(item)), default=-1)
    gone: set[int] = set()
    freed = 0
    for unit in _units(items, last_words):
        if freed >= num_bytes and (unit[0] > last_words or _is_users(items[unit[0]])):
            break
        gone.update(unit)
        freed += sum(_size(items[place]) for place in unit)
    return [item for place, item in enumerate(items) if place not in gone]


def _units(items: Sequence[Item], last_words: int) -> list[list[int]]:
    """The places of what may go, oldest first: a call and its output together."""
    units: dict[object, list[int]] = {}
    for place, item in enumerate(items):
        units.setdefault(item.get("call_id", place), []).append(place)
    kept = {last_words, len(items) - 1}
    return [unit for unit in units.values() if kept.isdisjoint(unit) and not _is_instruction(items[unit[0]])]


def _reader(snapshot: Snapshot, scope: Scope | None, inference: Inference, tier: str | None) -> tuple[str, int] | None:
    """Of the models that may answer, the one that holds most, and how much; None if one's context is not known."""
    names: Sequence[str] = (inference.model,)
    router = snapshot.router_for(scope) if inference.model == AUTO else None
    if router is not None:
        able = {name for name, each in router.policy.candidates.items() if inference.needs <= each.capabilities}
        names = [name for each in router.policy.tiers if tier in (None, each.name) for name in each.models]
        names = [name for name in names if name in able]
    contexts = [(snapshot.catalog.context_tokens(name), name) for name in names]
    known = [(context, name) for context, name in contexts if context is not None]
    if not known or len(known) < len(contexts):
        return None
    context, name = max(known)
    return name, context


async def _count(catalog: Catalog, model: str, inference: Inference, items: Sequence[Item]) -> int:
    """By the model's own tokenizer where it is here, else estimated by length."""
    for deployment in catalog.fleet(model).deployments:
        if isinstance(deployment.backend, Tokenizes):
            outbound = Outbound(request_id="", inference=inference, upstream_model=deployment.upstream_model)
            try:
                return len(await deployment.backend.tokenize(outbound, special=True))
            except ContextLengthExceeded:  # so long that nobody need count it
                break
    attached = sum(map(_attached, items))
    return prompt_tokens(inference) - attached // BYTES_PER_TOKEN


def _size(item: Item) -> int:
    return len(msgspec.json.encode(item)) - _attached(item)


def _attached(item: Item) -> int:
    content = item.get("content") or item.get("output")
    parts = content if isinstance(content, list) else []
    return sum(len(part.get(name) or "") for part in parts for name in ATTACHED)


def _is_users(item: Item) -> bool:
    return bool(item["type"] == "message" and item["role"] == "user")


def _is_instruction(item: Item) -> bool:
    return bool(item["type"] == "message" and item["role"] in ("system", "developer"))
