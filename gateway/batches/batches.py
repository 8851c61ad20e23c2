"""Batches as their clients see them: created, found, listed, cancelled. Who runs them is `gateway.batches.worker`."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from gateway.batches.errors import ended_already, no_such_batch, wrong_purpose
from gateway.batches.types import WINDOW_S, Batch
from gateway.errors import InvalidRequestError, NotFoundError
from gateway.files.files import Files
from gateway.ids import new_id
from gateway.store.batches import insert_batch, mark_cancelling, select_batch, select_batches
from gateway.store.database import Database
from gateway.tenants.types import Principal
from gateway.wire.batches_api import BatchRequest


class Batches:
    def __init__(self, database: Database, files: Files) -> None:
        self.on_change: Callable[[], None] = lambda: None  # whoever runs them hears that there is something to do
        self._database = database
        self._files = files

    async def create(self, principal: Principal, wanted: BatchRequest) -> Batch:
        """Raises InvalidRequestError."""
        tenant_id = principal.tenant.id
        try:
            file = await self._files.find(tenant_id, wanted.input_file_id)
        except NotFoundError as error:
            raise InvalidRequestError(error.message, param="input_file_id", code="invalid_file") from error
        if file.purpose != "batch":
            raise wrong_purpose(file.id, file.purpose)
        now = datetime.now(UTC)
        batch = Batch(
            id=f"batch_{new_id()}",
            tenant_id=tenant_id,
            key_id=principal.key.id,
            endpoint=wanted.endpoint,
            input_file_id=file.id,
            metadata=None if wanted.metadata is None else msgspec.json.encode(wanted.metadata).decode(),
            output_ttl_s=wanted.output_expires_after.seconds if wanted.output_expires_after is not None else None,
            created_at=now,
            expires_at=now + timedelta(seconds=WINDOW_S),
        )
        await insert_batch(self._database, batch)
        self.on_change()
        return batch

    async def find(self, tenant_id: str, id: str) -> Batch:
        """Raises NotFoundError, for another tenant's too."""
        batch = await select_batch(self._database, tenant_id, id)
        if batch is None:
            raise no_such_batch(id)
        return batch

    async def page(self, tenant_id: str, *, after: str | None, limit: int) -> list[Batch]:
        return await select_batches(self._database, tenant_id, after=after, limit=limit)

    async def cancel(self, tenant_id: str, id: str) -> Batch:
        """As it stands then; what is finished of it stays. Raises NotFoundError, InvalidRequestError."""
        batch = await self.find(tenant_id, id)
        if not batch.unfinished:
            raise ended_already(batch)
        await mark_cancelling(self._database, tenant_id, id, datetime.now(UTC))
        self.on_change()
        return await self.find(tenant_id, id)
