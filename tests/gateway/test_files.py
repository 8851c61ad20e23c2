"""Stored files: in parts, within limits, for their tenant alone, gone when they should be; on both databases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from gateway.config import FilesConfig
from gateway.errors import ApiError, ClientClosedRequest, InvalidRequestError, NotFoundError, PayloadTooLarge
from gateway.files.files import ABANDONED_AFTER, Files
from gateway.files.types import PART_BYTES, StoredFile
from gateway.files.upload import upload
from gateway.store.database import Database
from gateway.store.files import finish_file

pytestmark = pytest.mark.anyio

LIMITS = FilesConfig(max_mb=3.0, max_tenant_mb=5.0)
BOUNDARY = "a-boundary"
FORM = f"multipart/form-data; boundary={BOUNDARY}"


@pytest.fixture
async def files(database: Database) -> AsyncIterator[Files]:
    async with AsyncExitStack() as stack:
        yield await Files.open(database, LIMITS, stack)


def form(*parts: tuple[str, bytes], filename: str = "in.jsonl") -> bytes:
    """`file` with a filename, the others as fields, in this order."""
    lines = []
    for name, data in parts:
        named = f'; filename="{filename}"' if name == "file" else ""
        lines.append(f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + data)
    return b"\r\n".join([*lines, f"--{BOUNDARY}--\r\n".encode()])


async def in_pieces(body: bytes, size: int = 65_537, then: Exception | None = None) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]
    if then is not None:
        raise then


async def sent(files: Files, body: bytes, tenant: str = "t1", content_type: str = FORM, **how: Any) -> StoredFile:
    return await upload(files, tenant, content_type, in_pieces(body, **how))


async def read(files: Files, id: str) -> bytes:
    return b"".join([part async for part in files.parts(id)])


async def num_rows(database: Database) -> tuple[int, int]:
    async with database.read() as connection:
        return tuple([await connection.scalar(text(f"SELECT COUNT(*) FROM {t}")) for t in ("files", "file_parts")])  # type: ignore[return-value]


async def test_what_is_sent_is_read_again(files: Files) -> None:
    data = b"\r\n--not-the-boundary\x00\xff" * 20
    for size in (1, 7, 65_537):
        file = await sent(files, form(("purpose", b"batch"), ("file", data)), size=size)
        assert await read(files, file.id) == data
    assert (file.num_bytes, file.purpose, file.filename) == (len(data), "batch", "in.jsonl")
    assert await files.find("t1", file.id) == file
    assert file.expires_at == file.created_at + timedelta(days=30)


async def test_the_order_of_the_parts_does_not_matter_and_large_files_lie_in_parts(
    files: Files, database: Database
) -> None:
    data = bytes(range(256)) * (10 * PART_BYTES // 1024)
    file = await sent(files, form(("file", data), ("purpose", b"user_data")))
    assert await read(files, file.id) == data
    assert file.expires_at is None
    assert await num_rows(database) == (1, 3)


async def test_nobody_finds_anothers_file(files: Files) -> None:
    file = await sent(files, form(("purpose", b"batch"), ("file", b"x")))
    for attempt in (files.find("t2", file.id), files.remove("t2", file.id)):
        with pytest.raises(NotFoundError):
            await attempt
    assert await files.page("t2", limit=10) == []
    assert await read(files, file.id) == b"x"


REFUSED = [
    (form(("file", b"x")), FORM, "purpose"),
    (form(("purpose", b"nonsense"), ("file", b"x")), FORM, "purpose"),
    (form(("purpose", b"\xff"), ("file", b"x")), FORM, "purpose"),
    (form(("purpose", b"batch")), FORM, "file"),
    (form(("purpose", b"batch"), ("purpose", b"batch"), ("file", b"x")), FORM, "purpose"),
    (form(("file", b"x"), ("purpose", b"batch"), ("file", b"x")), FORM, "file"),
    (form(("purpose", b"x" * 5000), ("file", b"x")), FORM, "purpose"),
    (form(("purpose", b"batch"), ("expires_after[seconds]", b"1"), ("file", b"x")), FORM, "expires_after[seconds]"),
    (form(("purpose", b"batch"), ("file", b"x"))[:-10], FORM, None),
    (b"nothing of the kind", FORM, None),
    (b"{}", "application/json", None),
    (b"", "multipart/form-data", None),
]


async def test_a_faulty_form_is_refused_and_leaves_nothing(files: Files, database: Database) -> None:
    for body, content_type, param in REFUSED:
        with pytest.raises(InvalidRequestError) as refused:
            await sent(files, body, content_type=content_type)
        assert (body, refused.value.param) == (body, param)
    assert await num_rows(database) == (0, 0)


async def test_whoever_leaves_in_mid_upload_leaves_nothing(files: Files, database: Database) -> None:
    body = form(("purpose", b"batch"), ("file", b"x" * 2 * PART_BYTES))
    with pytest.raises(ClientClosedRequest):
        await sent(files, body[:-100], then=ClientClosedRequest("gone"))
    assert await num_rows(database) == (0, 0)


async def test_a_file_and_a_tenants_files_have_their_limits(files: Files, database: Database) -> None:
    too_large = form(("purpose", b"batch"), ("file", b"x" * 3_000_001))
    with pytest.raises(PayloadTooLarge) as refused:
        await sent(files, too_large)
    assert refused.value.code == "request_too_large"
    await sent(files, form(("purpose", b"batch"), ("file", b"x" * 3_000_000)))
    second = form(("purpose", b"batch"), ("file", b"x" * 2_500_000))
    with pytest.raises(PayloadTooLarge) as refused:
        await sent(files, second)
    assert refused.value.code == "storage_exceeded"
    await sent(files, second, tenant="t2")
    assert (await num_rows(database))[0] == 2


async def test_files_that_come_at_once_share_the_room(files: Files, database: Database) -> None:
    each = form(("purpose", b"batch"), ("file", b"x" * 2_000_000))
    ends = await asyncio.gather(*(sent(files, each) for _ in range(6)), return_exceptions=True)
    kept = [end for end in ends if isinstance(end, StoredFile)]
    assert len(kept) <= 2
    assert {end.code for end in ends if isinstance(end, PayloadTooLarge)} == {"storage_exceeded"}
    assert (await num_rows(database))[0] == len(kept)
    await sent(files, form(("purpose", b"batch"), ("file", b"x")))


async def test_pages_go_by_age(files: Files) -> None:
    purposes = (b"batch", b"vision", b"batch", b"batch")
    ids = [(await sent(files, form(("purpose", p), ("file", b"x")))).id for p in purposes]

    async def page(**wanted: Any) -> list[str]:
        return [file.id for file in await files.page("t1", **wanted)]

    assert await page(limit=10) == ids[::-1]
    assert await page(limit=2, order="asc") == ids[:2]
    assert await page(limit=2, order="asc", after=ids[1]) == ids[2:]
    assert await page(limit=2, after=ids[2]) == [ids[1], ids[0]]
    assert await page(limit=10, purpose="vision") == [ids[1]]


async def test_a_deleted_file_is_gone_with_its_bytes(files: Files, database: Database) -> None:
    file = await sent(files, form(("purpose", b"batch"), ("file", b"x")))
    await files.remove("t1", file.id)
    assert await num_rows(database) == (0, 0)
    with pytest.raises(ApiError):
        await files.remove("t1", file.id)


async def test_the_sweep_takes_what_expired_and_what_was_never_finished(files: Files, database: Database) -> None:
    kept, expired = [await sent(files, form(("purpose", b"batch"), ("file", b"x"))) for _ in range(2)]
    await (await files.begin("t1")).write(b"y" * PART_BYTES)
    now = datetime.now(UTC)
    async with database.write() as transaction:
        gone = replace(expired, expires_at=now - timedelta(seconds=1))
        await finish_file(transaction, gone)
    with pytest.raises(NotFoundError):
        await files.find("t1", expired.id)
    assert await files.sweep() == 1
    old = {"old": now - ABANDONED_AFTER - timedelta(seconds=1)}
    async with database.write() as transaction:
        value = old["old"] if database.dialect == "postgresql" else old["old"].replace(tzinfo=None)
        await transaction.execute(text("UPDATE files SET created_at = :old WHERE NOT whole"), {"old": value})
    assert await files.sweep() == 1
    assert [file.id for file in await files.page("t1", limit=10)] == [kept.id]
    assert await num_rows(database) == (1, 1)
