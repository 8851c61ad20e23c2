"""Lists of items, and what is said of a response that is gone."""

from typing import Any, Literal

import msgspec

from gateway.wire.body import invalid

Order = Literal["asc", "desc"]


def items_list(items: list[dict[str, Any]], *, limit: int, order: Order, after: str | None) -> bytes:
    """One page. Raises InvalidRequestError for an `after` that is none of the items."""
    ordered = items if order == "asc" else items[::-1]
    if after is not None:
        places = [index for index, item in enumerate(ordered) if item.get("id") == after]
        if not places:
            raise invalid("after", "there is no such item")
        ordered = ordered[places[0] + 1 :]
    page = ordered[:limit]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return msgspec.json.encode({"object": "list", "data": page, "has_more": len(ordered) > limit} | ends)


def deleted_object(response_id: str) -> bytes:
    return msgspec.json.encode({"id": response_id, "object": "response", "deleted": True})
