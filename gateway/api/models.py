"""GET /v1/models and /v1/models/{id}: what the caller's key may name, in the shape that its client reads."""

from typing import Any

from litestar import Request, get
from litestar.types import ASGIApp

from gateway.answer import Answer
from gateway.api.errors import is_anthropics
from gateway.api.incoming import caller
from gateway.errors import NotFoundError
from gateway.wire.messages.models import model_info, models_page
from gateway.wire.responses import model_object, models_list


@get("/v1/models")
async def list_models(request: Request[Any, Any, Any]) -> ASGIApp:
    listing = await _listing(request)
    if is_anthropics(request.scope):
        return Answer(models_page(name for name, _ in listing))
    return Answer(models_list(listing))


@get("/v1/models/{model_id:path}")
async def retrieve_model(request: Request[Any, Any, Any]) -> ASGIApp:
    name = str(request.path_params["model_id"]).removeprefix("/")
    for entry in await _listing(request):
        if entry[0] == name:
            return Answer(model_info(name) if is_anthropics(request.scope) else model_object(*entry))
    message = f"The model '{name}' does not exist or you do not have access to it."
    raise NotFoundError(message, param="model", code="model_not_found")


async def _listing(request: Request[Any, Any, Any]) -> list[tuple[str, str]]:
    principal = await caller(request)
    return request.app.state.house.snapshot.listing(principal.key.scope)  # type: ignore[no-any-return]
