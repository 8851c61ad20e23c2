"""GET /v1/models and /v1/models/{id}."""

from typing import Any

from litestar import Request, get
from litestar.types import ASGIApp

from gateway.answer import Answer
from gateway.errors import NotFoundError
from gateway.wire.responses import model_object, models_list


@get("/v1/models")
async def list_models(request: Request[Any, Any, Any]) -> ASGIApp:
    house = request.app.state.house
    await house.authenticator.identify(request.headers.get("authorization"))
    return Answer(models_list(house.snapshot.catalog.listing()))


@get("/v1/models/{model_id:path}")
async def retrieve_model(request: Request[Any, Any, Any]) -> ASGIApp:
    house = request.app.state.house
    await house.authenticator.identify(request.headers.get("authorization"))
    name = str(request.path_params["model_id"]).removeprefix("/")
    for entry in house.snapshot.catalog.listing():
        if entry[0] == name:
            return Answer(model_object(*entry))
    message = f"The model '{name}' does not exist or you do not have access to it."
    raise NotFoundError(message, param="model", code="model_not_found")
