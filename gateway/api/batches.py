"""/v1/batches: a file of requests, answered when there is time."""

from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.params import FromPath, QueryParameter
from litestar.types import ASGIApp

from gateway.answer import Answer
from gateway.api.incoming import caller
from gateway.batches.batches import Batches
from gateway.batches.types import Batch
from gateway.ids import ID
from gateway.wire.batches_api import batch_object, parse_batch
from gateway.wire.files_api import page_of

AnyRequest = Request[Any, Any, Any]


@post("/v1/batches", status_code=200)
async def create_batch(request: AnyRequest) -> ASGIApp:
    principal, house = await caller(request), request.app.state.house
    house.doors.check()
    ticket = await house.limiter.admit(principal)
    try:
        wanted = parse_batch(await request.body())
        house.authenticator.recall(principal.key.id, wanted.endpoint)  # a key is good for what it is good for
        return _told(await house.batches.create(principal, wanted))
    finally:
        await ticket.settle()


@get("/v1/batches")
async def list_batches(
    request: AnyRequest,
    after: Annotated[str | None, QueryParameter(pattern=f"^batch_{ID}$")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
) -> ASGIApp:
    batches, tenant_id = await _room(request)
    found = await batches.page(tenant_id, after=after, limit=limit + 1)
    return Answer(page_of([batch_object(batch) for batch in found], limit))


@get("/v1/batches/{batch_id:str}")
async def retrieve_batch(request: AnyRequest, batch_id: FromPath[str]) -> ASGIApp:
    batches, tenant_id = await _room(request)
    return _told(await batches.find(tenant_id, batch_id))


@post("/v1/batches/{batch_id:str}/cancel", status_code=200)
async def cancel_batch(request: AnyRequest, batch_id: FromPath[str]) -> ASGIApp:
    batches, tenant_id = await _room(request)
    return _told(await batches.cancel(tenant_id, batch_id))


def _told(batch: Batch) -> Answer:
    return Answer(msgspec.json.encode(batch_object(batch)))


async def _room(request: AnyRequest) -> tuple[Batches, str]:
    """Raises AuthenticationError."""
    principal = await caller(request)
    return request.app.state.house.batches, principal.tenant.id
