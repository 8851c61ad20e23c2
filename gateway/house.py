"""All parts of a running gateway, as the pipeline finds them. Built by `gateway.build`, served by `gateway.app`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gateway.allowed import may_use, narrowed, narrows_models
from gateway.batches.batches import Batches
from gateway.bookkeeping import Bookkeeper
from gateway.catalog import Catalog
from gateway.config import AUTO, Config
from gateway.doors import Doors
from gateway.files.files import Files
from gateway.ledger.ledger import Ledger
from gateway.ledger.prices import PriceBook
from gateway.responses.responses import Responses
from gateway.store.database import Database
from gateway.telemetry.metrics import Metrics
from gateway.tenants.auth import Authenticator
from gateway.tenants.limits import Limiter
from gateway.tenants.outbox import Outbox
from gateway.tenants.types import Scope
from gateway.upstream.backends import Backends
from semcache.cache import SemanticCache

if TYPE_CHECKING:
    from routing.router import Router

MAX_NARROWED = 1000  # routers for scopes that are remembered


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an edit of config.toml replaces, all at once."""

    config: Config
    catalog: Catalog
    router: "Router | None"  # None without tiers
    _narrowed: "dict[Any, Router | None]" = field(default_factory=dict)  # by models and tiers of a scope

    def router_for(self, scope: Scope | None) -> "Router | None":
        """The router over what a key's scope leaves; None without tiers, and where it leaves nothing."""
        if self.router is None or scope is None or not narrows_models(scope):
            return self.router
        left = scope.models, scope.tiers
        if left not in self._narrowed:
            if len(self._narrowed) >= MAX_NARROWED:
                self._narrowed.clear()
            policy = narrowed(self.router.policy, scope, self.catalog.tiers)
            self._narrowed[left] = self.router.with_policy(policy) if policy is not None else None
        return self._narrowed[left]

    def listing(self, scope: Scope | None) -> list[tuple[str, str]]:
        """The names that a key may use, with who serves each."""

        def may(name: str) -> bool:
            return self.router_for(scope) is not None if name == AUTO else may_use(scope, name, self.catalog.tiers)

        return [entry for entry in self.catalog.listing() if may(entry[0])]


@dataclass(slots=True)
class House:
    database: Database
    authenticator: Authenticator
    limiter: Limiter
    outbox: Outbox
    prices: PriceBook
    ledger: Ledger
    bookkeeper: Bookkeeper
    metrics: Metrics
    cache: SemanticCache
    backends: Backends
    responses: Responses
    files: Files
    batches: Batches
    snapshot: Snapshot
    doors: Doors
    shares: bool = False  # limits and exact answers with other gateways, through Redis
    ready: bool = False

    @property
    def status(self) -> Literal["ok", "starting", "draining"]:
        if self.doors.closed:
            return "draining"
        return "ok" if self.ready else "starting"

    def condition(self) -> dict[str, str]:
        """What works less than well at the moment, in words; "ok" where nothing is to be said."""
        books = self.ledger.stats()
        found = {
            "journal": "failing: records are kept in memory" if books.journal_error else "ok",
            "database": "away" if books.database_error or self.authenticator.error else "ok",
        }
        deployments = self.snapshot.catalog.deployments()
        if resting := sum(deployment.breaker.state != "closed" for deployment in deployments):
            found["deployments"] = f"{resting} of {len(deployments)} left alone"
        if self.shares:
            refuses = self.snapshot.config.limits.when_redis_is_away == "refuse"
            away = "away: who has a limit is refused" if refuses else "away: counting in this process"
            found["redis"] = "ok" if self.limiter.shared else away
        return found
