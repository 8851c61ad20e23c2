"""All parts of a running gateway, as the pipeline finds them. Built and closed by `gateway.app`."""

from dataclasses import dataclass, field

from gateway.bookkeeping import Bookkeeper
from gateway.catalog import Catalog
from gateway.config import Config
from gateway.ledger.ledger import Ledger
from gateway.store.database import Database
from gateway.telemetry.metrics import Metrics
from gateway.tenants.auth import Authenticator
from gateway.tenants.limits import Limiter
from gateway.upstream.types import Backend
from routing.router import Router
from semcache.cache import SemanticCache
from semcache.embedder import Embedder


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
    ledger: Ledger
    bookkeeper: Bookkeeper
    cache: SemanticCache
    metrics: Metrics
    snapshot: Snapshot
    embedder: Embedder | None = None
    backends: dict[str, Backend] = field(default_factory=dict)
    ready: bool = False
