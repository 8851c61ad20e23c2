"""GET /admin/openapi.json: the admin API described by itself, and by nothing else of the gateway."""

from functools import cache
from importlib.metadata import version
from typing import Any

from litestar import Litestar, get

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_REFUSAL = {
    "description": "Refused, in OpenAI's error shape",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


@get("/openapi.json", include_in_schema=False)
async def openapi() -> dict[str, Any]:
    return document()


@cache
def document() -> dict[str, Any]:
    """Made at the first call, by an application that serves nothing."""
    from litestar.openapi.config import OpenAPIConfig

    from gateway.api.admin.router import admin_router

    config = OpenAPIConfig(title="Tollhouse's admin API", version=version("tollhouse"))
    app = Litestar([admin_router()], openapi_config=config, logging_config=None)
    made: dict[str, Any] = app.openapi_schema.to_schema()
    made["components"]["schemas"]["Error"] = _ERROR
    made["components"]["securitySchemes"] = {"admin key": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"admin key": []}]
    for operations in made["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("400", None)  # the framework's own shape, which is not ours
            operation["responses"]["default"] = _REFUSAL
    return made
