"""What was said before: the turns behind a previous_response_id, and the items behind references."""

from collections.abc import Iterable
from datetime import UTC, datetime

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
        own = [await self._resolved(tenant_id, item, turns) for item in creation.items]
        said = [item for turn in turns for item in await self._said(tenant_id, turn, turns)]
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
        if turns[0].previous_id is not None:
            if len(turns) >= MAX_TURNS:
                raise refused("previous_response_id", f"The conversation has more than {MAX_TURNS} turns.")
            raise no_such_previous(turns[0].previous_id)
        if turns[-1].active:
            raise refused("previous_response_id", f"The response '{last}' has not ended yet.")
        return turns

    async def _said(self, tenant_id: str, turn: StoredResponse, turns: list[StoredResponse]) -> list[Item]:
        """What was put in, and what came out of it; a call whose arguments were cut off can't be told."""
        put_in = [await self._resolved(tenant_id, item, turns) for item in turn.items]
        return put_in + [item for item in turn.response["output"] if not _is_cut_call(item)]

    async def _resolved(self, tenant_id: str, item: Item, turns: Iterable[StoredResponse]) -> Item:
        if item["type"] != "item_reference":
            return item
        id = item["id"]
        owner = response_of(id)
        if owner is not None:
            known = next((turn for turn in turns if turn.id == owner), None)
            if (found := known or await self._shelf.find(tenant_id, owner)) is not None:
                everything: list[Item] = [*found.items, *found.response["output"]]
                for candidate in everything:
                    if candidate.get("id") == id and candidate["type"] != "item_reference":
                        return candidate
        raise no_such_item(id)


def _is_cut_call(item: Item) -> bool:
    return item["type"] == "function_call" and item.get("status") != "completed"
