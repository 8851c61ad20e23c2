"""All parts of a running gateway, as the pipeline finds them. Built by `gateway.build`, served by `gateway.app`."""

from dataclasses import dataclass

from gateway.bookkeeping import Bookkeeper
from gateway.catalog import Catalog
from gateway.config import Config
from gateway.ledger.ledger import Ledger
from gateway.ledger.prices import PriceBook
from gateway.store.database import Database
from gateway.telemetry.metrics import Metrics
from gateway.tenants.auth import Authenticator
from gateway.tenants.limits import Limiter
from gateway.upstream.backends import Backends
from routing.router import Router
from semcache.cache import SemanticCache


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an edit of config.toml replaces, all at once."""

    config: Config
    catalog: Catalog
    router: Router | None  # None without tiers


@dataclass(slots=True)
class House:
    database: Database
    authenticator: Authenticator
    limiter: Limiter
    prices: PriceBook
    ledger: Ledger
    bookkeeper: Bookkeeper
    metrics: Metrics
    cache: SemanticCache
    backends: Backends
    snapshot: Snapshot
    shares: bool = False  # limits and exact answers with other gateways, through Redis
    ready: bool = False

    def condition(self) -> dict[str, str]:
        """What works less than well at the moment, in words; "ok" where nothing is to be said."""
        books = self.ledger.stats()
        found = {
            "journal": "failing: records are kept in memory" if books.journal_error else "ok",
            "database": "away" if books.database_error or self.authenticator.error else "ok",
        }
        if self.shares:
            found["redis"] = "ok" if self.limiter.shared else "away: counting in this process"
        return found
