"""Who may call the admin API, and what its handlers are given: the database, and who acts."""

from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.handlers.base import BaseRouteHandler
from litestar.params import SkipValidation

from gateway.api.incoming import Headers
from gateway.house import House
from gateway.store.database import Database
from gateway.tenants.admin_key import require_admin
from gateway.tenants.audit import Actor

Gateway = NamedDependency[SkipValidation[House]]
Books = NamedDependency[SkipValidation[Database]]
By = NamedDependency[SkipValidation[Actor]]


def admin_only(connection: ASGIConnection[Any, Any, Any, Any], _handler: BaseRouteHandler) -> None:
    """A guard: nothing of a body is read before. Raises AuthenticationError, PermissionDeniedError."""
    require_admin(connection.headers.get("authorization"))


async def gateway(request: Request[Any, Any, Any]) -> House:
    house: House = request.app.state.house
    return house


async def books(request: Request[Any, Any, Any]) -> Database:
    house: House = request.app.state.house
    return house.database


async def by(request: Request[Any, Any, Any]) -> Actor:
    """For the audit table: the admin key, from the client's address as the trusted proxies tell it."""
    house: House = request.app.state.house
    address = house.authenticator.proxies.client(Headers(request.scope))
    return Actor("admin-key", "", str(address or "unknown"))
