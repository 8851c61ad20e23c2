"""/v1/files: what a tenant stores, for batches above all. Bytes pass in parts, in and out."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.types import ASGIApp

from gateway.answer import Answer, StreamAnswer
from gateway.api.incoming import Headers, body_pieces, caller
from gateway.errors import ApiError
from gateway.files.files import Files
from gateway.files.types import StoredFile
from gateway.files.upload import upload
from gateway.ids import ID
from gateway.store.files import Order
from gateway.wire.files_api import deleted_file, file_object, page_of

AnyRequest = Request[Any, Any, Any]
MAX_PAGE = 10_000
BINARY = (b"content-type", b"application/octet-stream")


@post("/v1/files", status_code=200, request_max_body_size=None)
async def create_file(request: AnyRequest) -> ASGIApp:
    principal, house = await caller(request), request.app.state.house
    house.doors.check()
    ticket = await house.limiter.admit(principal)
    try:
        content_type = Headers(request.scope)("content-type")
        file = await upload(house.files, principal.tenant.id, content_type, body_pieces(request.receive))
    finally:
        await ticket.settle()
    return Answer(msgspec.json.encode(file_object(file)))


@get("/v1/files")
async def list_files(
    request: AnyRequest,
    purpose: FromQuery[str | None] = None,
    after: Annotated[str | None, QueryParameter(pattern=f"^file-{ID}$")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)] = MAX_PAGE,
    order: FromQuery[Order] = "desc",
) -> ASGIApp:
    files, tenant_id = await _room(request)
    found = await files.page(tenant_id, purpose=purpose, after=after, limit=limit + 1, order=order)
    return Answer(page_of([file_object(file) for file in found], limit))


@get("/v1/files/{file_id:str}")
async def retrieve_file(request: AnyRequest, file_id: FromPath[str]) -> ASGIApp:
    files, tenant_id = await _room(request)
    return Answer(msgspec.json.encode(file_object(await files.find(tenant_id, file_id))))


@get("/v1/files/{file_id:str}/content")
async def file_content(request: AnyRequest, file_id: FromPath[str]) -> ASGIApp:
    files, tenant_id = await _room(request)
    file = await files.find(tenant_id, file_id)
    length = (b"content-length", b"%d" % file.num_bytes)
    return StreamAnswer(_Content(files, file), [length], content_type=BINARY)


@delete("/v1/files/{file_id:str}", status_code=200)
async def delete_file(request: AnyRequest, file_id: FromPath[str]) -> ASGIApp:
    files, tenant_id = await _room(request)
    await files.remove(tenant_id, file_id)
    return Answer(deleted_file(file_id))


class _Content:
    """Implements `gateway.answer.Source`. One that is deleted meanwhile breaks off, short of its announced length."""

    def __init__(self, files: Files, file: StoredFile) -> None:
        self._files = files
        self._file = file

    async def events(self) -> AsyncGenerator[bytes, None]:
        async for part in self._files.parts(self._file.id):
            yield part

    def broken(self, error: ApiError) -> bytes:
        return b""

    async def close(self) -> None:
        """Nothing is held."""


async def _room(request: AnyRequest) -> tuple[Files, str]:
    """Raises AuthenticationError."""
    principal = await caller(request)
    return request.app.state.house.files, principal.tenant.id
