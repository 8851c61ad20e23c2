"""Stored files, in SQL like everything that several gateways share: written, found, read and deleted in parts."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Self

from msgspec.structs import replace

from gateway.config import FilesConfig
from gateway.files.errors import in_use, no_room, no_such_file, too_large
from gateway.files.types import PART_BYTES, StoredFile
from gateway.ids import new_id
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.files import (
    Order,
    delete_file,
    finish_file,
    insert_file,
    insert_part,
    select_dead_files,
    select_file,
    select_files,
    select_part,
    select_reader,
    sum_file_bytes,
)

SWEEP_INTERVAL_S = 300.0
SWEPT_AT_A_TIME = 50
ABANDONED_AFTER = timedelta(hours=6)  # no upload and no batch's end takes so long

log = logging.getLogger("tollhouse.files")


class Files:
    def __init__(self, database: Database, config: FilesConfig) -> None:
        self.config = config
        self._database = database
        self._sweeping: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, database: Database, config: FilesConfig, stack: AsyncExitStack) -> Self:
        files = cls(database, config)
        files._sweeping = asyncio.create_task(files._sweep_forever(), name="files-sweep")
        stack.push_async_callback(files.aclose)
        return files

    async def aclose(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    async def begin(self, tenant_id: str, *, unbounded: bool = False) -> "Writing":
        """A file to be written. `unbounded`: one of our own, which no limit may cut short. Raises PayloadTooLarge."""
        id, now = f"file-{new_id()}", datetime.now(UTC)
        file = StoredFile(id=id, tenant_id=tenant_id, filename="", purpose="", num_bytes=0, created_at=now)
        room: int | None = None
        if not unbounded:
            most = int(self.config.max_tenant_mb * 1e6)
            room = most - await sum_file_bytes(self._database, tenant_id)
            if room <= 0:
                raise no_room(most)
        await insert_file(self._database, file)
        return Writing(self._database, file, self.config, room)

    async def find(self, tenant_id: str, id: str) -> StoredFile:
        """Raises NotFoundError, for another tenant's too."""
        file = await select_file(self._database, tenant_id, id, datetime.now(UTC))
        if file is None:
            raise no_such_file(id)
        return file

    async def page(
        self, tenant_id: str, *, purpose: str | None = None, after: str | None = None, limit: int, order: Order = "desc"
    ) -> list[StoredFile]:
        now = datetime.now(UTC)
        return await select_files(
            self._database, tenant_id, now, purpose=purpose, after=after, limit=limit, order=order
        )

    async def parts(self, id: str) -> AsyncIterator[bytes]:
        """The bytes of a file that was found."""
        part = 0
        while (data := await select_part(self._database, id, part)) is not None:
            yield data
            part += 1

    async def remove(self, tenant_id: str, id: str) -> None:
        """Raises NotFoundError, and InvalidRequestError while a batch reads it."""
        await self.find(tenant_id, id)
        if (batch_id := await select_reader(self._database, id)) is not None:
            raise in_use(id, batch_id)
        if not await delete_file(self._database, tenant_id, id):
            raise no_such_file(id)

    async def sweep(self) -> int:
        """Takes out what has expired or was never finished. Returns how many files."""
        num_gone, now = 0, datetime.now(UTC)
        while dead := await select_dead_files(self._database, now, now - ABANDONED_AFTER, SWEPT_AT_A_TIME):
            for tenant_id, id in dead:
                num_gone += await delete_file(self._database, tenant_id, id)
        return num_gone

    async def _sweep_forever(self) -> None:
        while True:
            try:
                if num_gone := await self.sweep():
                    log.info("%d stored files have expired and are gone", num_gone)
            except StoreError as error:
                log.warning("stored files can't expire for now: %s", error)
            await asyncio.sleep(SWEEP_INTERVAL_S)


class Writing:
    """One file on its way into the database; nobody sees it before `finish`. Every step may raise StoreError."""

    def __init__(self, database: Database, file: StoredFile, config: FilesConfig, room: int | None) -> None:
        self.file = file
        self._database = database
        self._config = config
        self._room = room  # in bytes; None: no limit
        self._buffer = bytearray()
        self._num_parts = 0
        self._num_bytes = 0

    async def write(self, piece: bytes | bytearray) -> None:
        """Raises PayloadTooLarge."""
        self._num_bytes += len(piece)
        if self._room is not None:
            if self._num_bytes > (most := int(self._config.max_mb * 1e6)):
                raise too_large(most)
            if self._num_bytes > self._room:
                raise no_room(int(self._config.max_tenant_mb * 1e6))
        self._buffer += piece
        while len(self._buffer) >= PART_BYTES:
            await self._put(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]

    async def close(self, *, filename: str, purpose: str, ttl_s: float | None = None) -> StoredFile:
        """All its bytes are there. `finish_file` makes it visible, in a transaction of the caller's."""
        if self._buffer:
            await self._put(bytes(self._buffer))
            self._buffer.clear()
        expires_at = self.file.created_at + timedelta(seconds=ttl_s) if ttl_s is not None else None
        return replace(self.file, filename=filename, purpose=purpose, num_bytes=self._num_bytes, expires_at=expires_at)

    async def finish(self, *, filename: str, purpose: str, ttl_s: float | None = None) -> StoredFile:
        """Raises PayloadTooLarge where others that were written meanwhile have taken its room."""
        file = await self.close(filename=filename, purpose=purpose, ttl_s=ttl_s)
        most = int(self._config.max_tenant_mb * 1e6)
        if self._room is not None and await sum_file_bytes(self._database, file.tenant_id) > most:
            raise no_room(most)
        async with self._database.write() as transaction:
            await finish_file(transaction, file)
        return file

    async def drop(self) -> None:
        """It is not wanted after all. What can't be deleted now is swept later."""
        try:
            await delete_file(self._database, self.file.tenant_id, self.file.id)
        except StoreError as error:
            log.warning("the unfinished file %s is left behind for now: %s", self.file.id, error)

    async def _put(self, data: bytes) -> None:
        await insert_part(self._database, self.file.id, self._num_parts, data)
        self._num_parts += 1
