"""Every handler of the admin API, under one guard."""

from litestar import Router

from gateway.api.admin.access import admin_only, books, by, gateway
from gateway.api.admin.budgets import Budgets
from gateway.api.admin.deployments import get_deployments
from gateway.api.admin.errors import EXCEPTION_HANDLERS
from gateway.api.admin.keys import Keys
from gateway.api.admin.ledger import Prices, Requests, get_costs
from gateway.api.admin.openapi import openapi
from gateway.api.admin.operation import Cache, Configuration, get_audit, get_health
from gateway.api.admin.tenants import Teams, Tenants


def admin_router() -> Router:
    return Router(
        "/admin",
        route_handlers=[
            Tenants,
            Teams,
            Keys,
            Budgets,
            Requests,
            get_costs,
            Prices,
            get_audit,
            Cache,
            Configuration,
            get_health,
            get_deployments,
            openapi,
        ],
        guards=[admin_only],
        dependencies={"gateway": gateway, "books": books, "by": by},
        exception_handlers=EXCEPTION_HANDLERS,
    )
