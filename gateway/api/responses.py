"""/v1/responses: create a response, find it again, cancel it, delete it. What lives on is `gateway.responses`' to know.

Creating is a dialect like any other, but for two things: the conversation before is looked up first, and the response
is stored before its last byte leaves.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Annotated, Any

from litestar import Request, delete, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.types import ASGIApp, Receive

from gateway.answer import Answer, StreamAnswer
from gateway.api.endpoint import endpoint
from gateway.api.incoming import Headers
from gateway.errors import InvalidRequestError
from gateway.heartbeat import Heartbeat
from gateway.ids import new_id
from gateway.responses.kept import KeptStream
from gateway.responses.responses import Responses
from gateway.responses.run import Listening, Run, nobody_leaves
from gateway.responses.truncation import fitted
from gateway.wire.responses_api.dialect import ResponsesDialect
from gateway.wire.responses_api.listing import Order, deleted_object, items_list
from gateway.wire.responses_api.request import Creation, parse_create

AnyRequest = Request[Any, Any, Any]


class _Creating:
    """One response in the making."""

    def __init__(self, state: Any, raw: bytes, header: Headers, receive: Receive, heartbeat: Heartbeat) -> None:
        self._state = state
        self._responses: Responses = state.house.responses
        self._ttl_days: float = state.house.snapshot.config.store.responses_ttl_days
        self._raw = raw
        self._header = header
        self._receive = receive
        self._heartbeat = heartbeat

    async def answer(self) -> Answer | StreamAnswer:
        state, header = self._state, self._header
        principal = await state.house.authenticator.identify(header("authorization"), header)
        self._tenant_id = principal.tenant.id
        creation = parse_create(self._raw, f"resp_{new_id()}", may_store=self._ttl_days > 0)
        conversation, self._turns = await self._responses.history.conversation(
            self._tenant_id, creation, state.max_body_bytes
        )
        if creation.wants.truncation == "auto":
            snapshot, scope, tier = state.house.snapshot, principal.key.scope, header("x-tollhouse-tier")
            conversation = await fitted(snapshot, scope, creation, conversation, tier=tier)
        dialect = ResponsesDialect(creation, conversation)
        if creation.background:
            return await self._in_background(creation, dialect)
        told: Answer | StreamAnswer = await state.pipeline.answer(
            dialect, self._raw, header, self._receive, heartbeat=self._heartbeat
        )
        if creation.stored:
            await self._stored(told, creation, dialect)
        return told

    async def _stored(self, told: Answer | StreamAnswer, creation: Creation, dialect: ResponsesDialect) -> None:
        """A whole answer at once, a stream's at its end; what was refused is no response."""
        keep = partial(self._keep, creation, dialect)
        if isinstance(told, StreamAnswer):
            told.source = KeptStream(told.source, dialect.answer, keep)
        elif told.status < 300 and dialect.answer.over:
            await keep()

    async def _keep(self, creation: Creation, dialect: ResponsesDialect) -> None:
        stored = self._responses.record(self._tenant_id, creation, dialect.answer.response, self._ttl_days)
        await self._responses.shelf.keep(stored, self._turns)

    async def _in_background(self, creation: Creation, dialect: ResponsesDialect) -> Answer | StreamAnswer:
        stored = self._responses.record(self._tenant_id, creation, dialect.answer.response, self._ttl_days)
        run = Run(stored, dialect.answer, streams=creation.stream)
        serve = partial(self._state.pipeline.answer, dialect, self._raw, self._header, nobody_leaves)
        refusal = await self._responses.runs.begin(run, self._turns, serve)
        if refusal is not None:
            return refusal
        doors = self._state.house.doors
        return StreamAnswer(Listening(run), [], doors) if creation.stream else Answer(stored.body)


def _create(*given: Any) -> Awaitable[Answer | StreamAnswer]:
    return _Creating(*given).answer()


create_response = endpoint("/v1/responses", _create)


@get("/v1/responses/{response_id:str}")
async def retrieve_response(
    request: AnyRequest,
    response_id: FromPath[str],
    stream: FromQuery[bool] = False,
    starting_after: Annotated[int | None, QueryParameter(ge=0)] = None,
) -> ASGIApp:
    """`stream`: the events of a response in the background, those behind `starting_after`."""
    responses, tenant_id = await _room(request)
    found = await responses.find(tenant_id, response_id)
    if not stream:
        return Answer(found.encoded)
    run = responses.runs.get(tenant_id, response_id)
    if run is None or not run.streams:
        message = (
            "Only a response created with background=true and stream=true can be streamed, and not long after its end."
        )
        raise InvalidRequestError(message, param="stream")
    listening = Listening(run, -1 if starting_after is None else starting_after)
    return StreamAnswer(listening, [], request.app.state.house.doors)


@post("/v1/responses/{response_id:str}/cancel")
async def cancel_response(request: AnyRequest, response_id: FromPath[str]) -> ASGIApp:
    responses, tenant_id = await _room(request)
    return Answer((await responses.cancel(tenant_id, response_id)).encoded)


@delete("/v1/responses/{response_id:str}", status_code=200)
async def delete_response(request: AnyRequest, response_id: FromPath[str]) -> ASGIApp:
    responses, tenant_id = await _room(request)
    await responses.remove(tenant_id, response_id)
    return Answer(deleted_object(response_id))


@get("/v1/responses/{response_id:str}/input_items")
async def list_input_items(
    request: AnyRequest,
    response_id: FromPath[str],
    limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
    order: FromQuery[Order] = "desc",
    after: FromQuery[str | None] = None,
) -> ASGIApp:
    responses, tenant_id = await _room(request)
    found = await responses.find(tenant_id, response_id)
    return Answer(items_list(found.items, limit=limit, order=order, after=after))


async def _room(request: AnyRequest) -> tuple[Responses, str]:
    """Raises AuthenticationError."""
    house, header = request.app.state.house, Headers(request.scope)
    principal = await house.authenticator.identify(header("authorization"), header)
    return house.responses, principal.tenant.id
