"""/admin/*: what the command line does, for programs. Open to the admin key alone, and closed where none is set."""

from litestar.types import ControllerRouterHandler

from gateway.tenants.admin_key import admin_key


def admin_handlers() -> list[ControllerRouterHandler]:
    """Decided at the start: a gateway without an admin key spends neither time nor memory on the API."""
    if not admin_key():
        from gateway.api.admin.closed import closed

        return [closed]
    from gateway.api.admin.router import admin_router

    return [admin_router()]
