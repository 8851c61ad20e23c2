"""All that the gateway knows of responses beyond the request that made them."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Self

import msgspec
from msgspec.structs import replace

from gateway.responses.errors import no_such_response, refused
from gateway.responses.history import History
from gateway.responses.runs import Runs
from gateway.responses.shelf import Shelf
from gateway.responses.types import StoredResponse
from gateway.store.database import Database
from gateway.wire.responses_api.request import Creation
from gateway.wire.responses_api.response_object import Response, failed


class Responses:
    def __init__(self, database: Database) -> None:
        self.shelf = Shelf(database)
        self.runs = Runs(database, self.shelf)
        self.history = History(database, self.shelf)

    @classmethod
    async def open(cls, database: Database, stack: AsyncExitStack) -> Self:
        responses = cls(database)
        await responses.shelf.start()
        stack.push_async_callback(responses.shelf.aclose)
        await responses.runs.start()
        stack.push_async_callback(responses.runs.aclose)
        return responses

    def record(self, tenant_id: str, creation: Creation, response: Response, ttl_days: float) -> StoredResponse:
        """A response object as it is to be stored."""
        created_at = datetime.fromtimestamp(response["created_at"], UTC)
        return StoredResponse(
            id=creation.response_id,
            tenant_id=tenant_id,
            previous_id=creation.wants.previous_response_id,
            status=response["status"],
            background=creation.background,
            created_at=created_at,
            expires_at=created_at + timedelta(days=ttl_days),
            input=msgspec.json.encode(creation.items),
            body=msgspec.json.encode(response),
        )

    async def find(self, tenant_id: str, id: str) -> StoredResponse:
        """As it stands. Raises NotFoundError, for another tenant's too, and StoreUnavailable."""
        if (run := self.runs.get(tenant_id, id)) is not None and not run.over:
            return run.current
        found = await self.shelf.find(tenant_id, id)
        if found is None:
            raise no_such_response(id)
        if found.active and found.lease_until is not None and found.lease_until < datetime.now(UTC):
            return await self._end(found, failed(found.response, "The gateway that ran this response was stopped."))
        return found

    async def cancel(self, tenant_id: str, id: str) -> StoredResponse:
        """As it stands then: what had ended stays as it was. Raises as `find`, and InvalidRequestError."""
        found = await self.find(tenant_id, id)
        if not found.background:
            raise refused("response_id", "Only responses created with background=true can be cancelled.")
        if not found.active:
            return found
        if (run := self.runs.get(tenant_id, id)) is not None:
            await run.halt()
            return run.current
        return await self._end(found, found.response | {"status": "cancelled"})  # its gateway will notice

    async def remove(self, tenant_id: str, id: str) -> None:
        """Raises as `find`."""
        if (run := self.runs.get(tenant_id, id)) is not None:
            await run.halt()
            self.runs.forget(id)
        if not await self.shelf.remove(tenant_id, id):
            raise no_such_response(id)

    async def _end(self, found: StoredResponse, response: Response) -> StoredResponse:
        ended = replace(found, status=response["status"], lease_until=None, body=msgspec.json.encode(response))
        await self.shelf.keep(ended)
        return ended
