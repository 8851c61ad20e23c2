"""The door of a gateway without an admin key: it says how to open it."""

from litestar import route

from gateway.api.admin.access import admin_only

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


@route(["/admin", "/admin/{rest:path}"], http_method=METHODS, guards=[admin_only])  # type: ignore[arg-type]
async def closed() -> None:
    raise AssertionError("the guard lets nobody in without an admin key")
