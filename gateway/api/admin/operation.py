"""/admin/audit, /admin/cache, /admin/config, /admin/health: how the gateway stands, and what was done to it."""

from importlib.metadata import version
from typing import Annotated, Any

import msgspec
from litestar import Controller, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from gateway.api.admin.access import Books, By, Gateway
from gateway.api.admin.ledger import Cursor, Limit
from gateway.api.admin.views import Body, Name
from gateway.config import parse
from gateway.config_check import ConfigError
from gateway.config_trial import try_out
from gateway.config_view import shown
from gateway.store.audit import AuditRow
from gateway.tenants.audit import list_acts
from gateway.tenants.erasures import clear_cache, invalidate_entry
from gateway.tenants.registry import get_tenant
from routing.errors import RoutingError
from semcache.types import CacheStats


class AuditPage(msgspec.Struct):
    """Newest first."""

    data: list[AuditRow]
    next: str | None  # null: there is no more


class Clearing(Body):
    tenant: Name | None = None  # null: all tenants'


class ConfigText(Body):
    toml: str


class Verdict(msgspec.Struct):
    valid: bool
    faults: list[str]  # each begins with where it is


class Health(msgspec.Struct):
    status: str  # ok, starting, draining
    version: str
    config_hash: str
    parts: dict[str, str]  # "ok", or what is wrong, in words


@get("/audit", tags=("audit",), summary="Every act of an administrator")
async def get_audit(
    books: Books,
    tenant: FromQuery[str | None] = None,
    action: Annotated[str | None, QueryParameter(description="`key.revoke`; `key`: all that is done to keys.")] = None,
    target_id: FromQuery[str | None] = None,
    after: Cursor = None,
    limit: Limit = 50,
) -> AuditPage:
    tenant_id = (await get_tenant(books, tenant)).id if tenant is not None else None
    rows = await list_acts(
        books, tenant_id=tenant_id, action=action, target_id=target_id, before_id=after, limit=limit + 1
    )
    return AuditPage(rows[:limit], rows[limit - 1].id if len(rows) > limit else None)


class Cache(Controller):
    path = "/cache"
    tags = ("cache",)

    @get(summary="What this gateway's cache holds, and what it did since the start")
    async def get_stats(self, gateway: Gateway) -> CacheStats:
        return gateway.cache.stats()

    @post("/clear", status_code=204, summary="Every gateway forgets what is stored, within a second")
    async def clear(self, data: JSONBody[Clearing], books: Books, by: By) -> None:
        await clear_cache(books, data.tenant, by=by)

    @delete("/entries/{entry_id:str}", summary="Every gateway forgets one stored answer, within a second")
    async def invalidate(self, entry_id: FromPath[str], books: Books, by: By) -> None:
        await invalidate_entry(books, entry_id, by=by)


class Configuration(Controller):
    path = "/config"
    tags = ("config",)

    @get(summary="The config in force, with its defaults and without secrets")
    async def get_config(self, gateway: Gateway) -> dict[str, Any]:
        return shown(gateway.snapshot.config)

    @post("/check", status_code=200, summary="What would be wrong with this config.toml; nothing is taken over")
    async def check(self, data: JSONBody[ConfigText]) -> Verdict:
        try:
            try_out(parse(data.toml.encode("utf-8", "surrogatepass")))
        except ConfigError as error:
            return Verdict(False, error.faults)
        except RoutingError as error:
            return Verdict(False, [f"router: {error}"])
        return Verdict(True, [])


@get("/health", tags=("config",), summary="How this gateway stands")
async def get_health(gateway: Gateway) -> Health:
    return Health(
        status=gateway.status,
        version=version("tollhouse"),
        config_hash=gateway.snapshot.config.hash,
        parts=gateway.condition(),
    )
