"""What was said before: the turns behind a previous_response_id, and the items behind references."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gateway.responses.errors import no_such_item, no_such_previous, refused
from gateway.responses.shelf import Shelf
from gateway.responses.types import Item, StoredResponse
from gateway.store.database import Database
from gateway.store.responses import measure_conversation, select_conversation
from gateway.wire.responses_api.input_items import response_of
from gateway.wire.responses_api.request import Creation

MAX_TURNS = 1_000


class History:
    def __init__(self, database: Database, shelf: Shelf) -> None:
        self._database = database
        self._shelf = shelf

    async def conversation(
        self, tenant_id: str, creation: Creation, max_bytes: int
    ) -> tuple[list[Item], tuple[str, ...]]:
        """All items that the model is to read, and the ids of the earlier turns.

        Raises InvalidRequestError, NotFoundError and StoreUnavailable.
        """
        turns: list[StoredResponse] = []
        if (previous := creation.wants.previous_response_id) is not None:
            turns = await self._turns(tenant_id, previous, max_bytes)
        references = _References(self._shelf, tenant_id, turns, max_bytes)
        own = [await references.resolved(item) for item in creation.items]
        said = [item for turn in turns for item in await _said(turn, references)]
        return [*said, *own], tuple(turn.id for turn in turns)

    async def _turns(self, tenant_id: str, last: str, max_bytes: int) -> list[StoredResponse]:
        await self._shelf.write_waiting()
        now = datetime.now(UTC)
        num_turns, num_bytes = await measure_conversation(self._database, tenant_id, last, now, MAX_TURNS)
        if not num_turns:
            raise no_such_previous(last)
        if num_bytes > max_bytes:
            raise refused("previous_response_id", f"The conversation is longer than {max_bytes} bytes.")
        turns = await select_conversation(self._database, tenant_id, last, now, MAX_TURNS)
        if not turns:
            raise no_such_previous(last)  # deleted meanwhile
        if turns[0].previous_id is not None:
            if len(turns) >= MAX_TURNS:
                raise refused("previous_response_id", f"The conversation has more than {MAX_TURNS} turns.")
            raise no_such_previous(turns[0].previous_id)
        if turns[-1].active:
            raise refused("previous_response_id", f"The response '{last}' has not ended yet.")
        return turns


async def _said(turn: StoredResponse, references: "_References") -> list[Item]:
    """What was put in, and what came out of it; a call whose arguments were cut off can't be told."""
    put_in = [await references.resolved(item) for item in turn.items]
    return put_in + [item for item in turn.response["output"] if not _is_cut_call(item)]


class _References:
    """Items behind references of one request: each response is read once, and all together are bounded."""

    def __init__(self, shelf: Shelf, tenant_id: str, turns: Sequence[StoredResponse], max_bytes: int) -> None:
        self._shelf = shelf
        self._tenant_id = tenant_id
        self._turns = {turn.id: turn for turn in turns}
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._items: dict[str, dict[str, tuple[Item, int]]] = {}  # by response and by item, with the item's size

    async def resolved(self, item: Item) -> Item:
        """The item itself, or what it refers to. Raises NotFoundError, InvalidRequestError and StoreUnavailable."""
        if item["type"] != "item_reference":
            return item
        owner = response_of(item["id"])
        found = (await self._items_of(owner)).get(item["id"]) if owner is not None else None
        if found is None:
            raise no_such_item(item["id"])
        self._take(found[1])
        return found[0]

    async def _items_of(self, owner: str) -> dict[str, tuple[Item, int]]:
        if owner not in self._items:
            found = self._turns.get(owner)
            if found is None and (found := await self._shelf.find(self._tenant_id, owner)) is not None:
                self._take(found.num_bytes)
            everything: list[Item] = [] if found is None else [*found.response["output"], *found.items]
            self._items[owner] = {
                item["id"]: (item, len(msgspec.json.encode(item)))
                for item in everything
                if item["type"] != "item_reference" and "id" in item
            }
        return self._items[owner]

    def _take(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        if self._num_bytes > self._max_bytes:
            raise refused("input", f"What the references refer to is longer than {self._max_bytes} bytes.")


def _is_cut_call(item: Item) -> bool:
    return item["type"] == "function_call" and item.get("status") != "completed"
