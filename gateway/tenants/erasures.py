"""What is to leave the cache: written into a table by administrators, followed by every gateway within a second."""

from gateway.store import erasures as store
from gateway.store.database import Database
from gateway.store.versions import VersionWatch
from gateway.tenants.audit import PROGRAM, Actor, Target, acting
from gateway.tenants.errors import InvalidValue
from gateway.tenants.registry.find import find_tenant
from semcache.cache import SemanticCache

_MAX_ID = 100  # characters


async def clear_cache(database: Database, tenant_name: str | None = None, *, by: Actor = PROGRAM) -> None:
    """All that is stored for a tenant by now, or for all of them. Raises UnknownName."""
    async with acting(database, by) as act:
        tenant = await find_tenant(act.transaction, tenant_name) if tenant_name is not None else None
        await store.insert_erasure(act.transaction, tenant.id if tenant is not None else None, None)
        act.note("cache.clear", target=tenant or Target("*", "all tenants"))


async def invalidate_entry(database: Database, entry_id: str, *, by: Actor = PROGRAM) -> None:
    """One stored answer, by the id that its hits carry (`x-tollhouse-cache-entry`). Raises InvalidValue."""
    if not entry_id or len(entry_id) > _MAX_ID or not entry_id.isprintable():
        raise InvalidValue("an entry's id is what the header x-tollhouse-cache-entry says")
    async with acting(database, by) as act:
        await store.insert_erasure(act.transaction, None, entry_id)
        act.note("cache.invalidate", target=Target(entry_id, entry_id))


class Erasures:
    """`start` before use, `aclose` after. Follows the table for one cache, from its first row on: a store shared
    between gateways may hold what was to go before this one was started.
    """

    def __init__(self, database: Database, cache: SemanticCache, *, interval_s: float = 0.5) -> None:
        self._database = database
        self._cache = cache
        self._done: set[str] = set()
        self._watch = VersionWatch(database, "erasures", self._follow, interval_s)

    async def start(self) -> None:
        """Raises StoreError when the database can't be read."""
        await self._watch.start()

    async def aclose(self) -> None:
        await self._watch.aclose()

    async def _follow(self) -> None:
        rows = await store.select_erasures(self._database)
        for row_id, erasure in rows:
            if row_id in self._done:
                continue
            if erasure.entry_id is not None:
                self._cache.invalidate(erasure.entry_id)
            else:
                self._cache.clear(erasure.tenant_id, erasure.erased_at.timestamp())
        self._done = {row_id for row_id, _ in rows}
