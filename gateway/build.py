"""Builds the parts of a gateway from its config, in the order they need each other, and applies a changed config."""

import logging
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.batches.batches import Batches
from gateway.bookkeeping import Bookkeeper
from gateway.catalog import Catalog
from gateway.config import CacheConfig, Config, LimitsConfig, home
from gateway.config_check import ConfigError
from gateway.config_secrets import secrets_of
from gateway.doors import Doors
from gateway.files.files import Files
from gateway.house import House, Snapshot
from gateway.ledger.ledger import Ledger
from gateway.ledger.prices import PriceBook
from gateway.ledger.retention import Retention
from gateway.models.needs import needs_embedder
from gateway.responses.responses import Responses
from gateway.store.budgets import select_spending
from gateway.store.database import Database
from gateway.store.url import sqlite_url
from gateway.telemetry.masking import never_show
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.parts import cache_metrics, deployment_metrics, engine_metrics, ledger_metrics
from gateway.tenants.admin_key import admin_key
from gateway.tenants.alerts import Alerts
from gateway.tenants.auth import Authenticator
from gateway.tenants.budget_book import BudgetBook
from gateway.tenants.erasures import Erasures
from gateway.tenants.gatekeeper import Proxies
from gateway.tenants.limits import Limiter
from gateway.tenants.outbox import Outbox
from gateway.tenants.spending import LedgerBooks, Spending
from gateway.tenants.types import Limits
from gateway.upstream.backends import Backends, Providers
from gateway.upstream.webhook import WebhookClient
from routing.errors import RoutingError
from routing.types import Policy
from semcache.cache import SemanticCache
from semcache.store.opening import open_file
from semcache.store.redis import RedisExactStore
from semcache.types import CacheOptions

if TYPE_CHECKING:  # what only some configs need is imported where they do
    from engine.client import EngineClient
    from routing.router import Router
    from semcache.embedder import Embedder

log = logging.getLogger("tollhouse.build")


async def open_house(config: Config, stack: AsyncExitStack) -> House:
    """Opens everything; `stack` closes it in the reverse order. Raises ConfigError and the parts' own errors."""
    never_show(secrets_of(config))
    state = home()
    state.mkdir(parents=True, exist_ok=True)
    database = Database(config.store.database_url or sqlite_url(state))
    stack.push_async_callback(database.aclose)
    await database.open()
    prices = PriceBook(database)
    stack.push_async_callback(prices.aclose)
    await prices.start(config.model)
    ledger = Ledger(database, state, config.store.journal_fsync_ms, prices=prices)
    await ledger.start()
    stack.push_async_callback(ledger.aclose)
    admin_key()  # refused here, if it could be guessed
    authenticator = Authenticator(database, Proxies(config.server.trusted_proxies))
    stack.push_async_callback(authenticator.aclose)
    await authenticator.start()
    outbox = Outbox(database, _webhooks(config), config.webhooks.url)
    stack.push_async_callback(outbox.aclose)
    limiter = await _open_limiter(config, database, ledger, outbox, stack)
    backends = await _open_backends(config, state / "models", stack)
    cache = await _open_cache(config, backends.embedder, state, stack)
    erasures = Erasures(database, cache)
    stack.push_async_callback(erasures.aclose)
    await erasures.start()
    providers = _plan(config, backends)
    metrics = _metrics(ledger, cache, backends)
    files = await Files.open(database, config.files, stack)
    house = House(
        database=database,
        authenticator=authenticator,
        limiter=limiter,
        outbox=outbox,
        prices=prices,
        ledger=ledger,
        bookkeeper=Bookkeeper(ledger, prices, metrics, config.baseline_model, frozenset(backends.local)),
        metrics=metrics,
        cache=cache,
        backends=backends,
        responses=await Responses.open(database, stack),
        files=files,
        batches=Batches(database, files),
        doors=Doors(config.server.max_concurrent_requests),
        shares=bool(config.store.redis_url),
        snapshot=_snapshot(config, backends, providers),
    )
    retention = Retention(database, lambda: house.snapshot.config.store.decisions_ttl_days)
    stack.push_async_callback(retention.aclose)
    retention.start()
    metrics.watch(deployment_metrics(lambda: house.snapshot.catalog.deployments(of_globs=False)))
    backends.adopt(providers)
    outbox.start()
    _say_who_is_missing(config)
    return house


async def apply(house: House, config: Config) -> None:
    """Takes over a changed config: all of it or, with an exception, nothing but new prices."""
    never_show(secrets_of(config))
    _refuse_new_engines(config, house.backends)
    providers = _plan(config, house.backends)
    snapshot = _snapshot(config, house.backends, providers, house.snapshot.catalog)
    old = _cache_options(house.snapshot.config.cache)
    try:
        house.cache.reconfigure(_cache_options(config.cache))
        await house.prices.seed(config.model)
    except BaseException:
        house.cache.reconfigure(old)
        raise
    house.backends.adopt(providers)
    house.limiter.set_defaults(_limits(config.limits), config.limits.when_redis_is_away)
    await house.outbox.reconfigure(_webhooks(config), config.webhooks.url)
    house.bookkeeper.baseline_model = config.baseline_model
    house.files.config = config.files
    house.snapshot = snapshot
    _say_who_is_missing(config)


async def _open_limiter(
    config: Config, database: Database, ledger: Ledger, outbox: Outbox, stack: AsyncExitStack
) -> Limiter:
    """With what the ledger knows of spending behind it, and every change of a budget."""
    spending = Spending(LedgerBooks(ledger.drain, partial(select_spending, database)))
    try:
        limiter = Limiter(
            _limits(config.limits),
            config.store.redis_url,
            spending=spending,
            watch=Alerts(outbox.put),
            when_redis_is_away=config.limits.when_redis_is_away,
        )
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    stack.push_async_callback(limiter.aclose)
    budgets = BudgetBook(database, limiter.set_budgets)
    stack.push_async_callback(budgets.aclose)
    await budgets.start()
    return limiter


def _webhooks(config: Config) -> WebhookClient | None:
    """None without a secret: a message that nobody could trust is not sent."""
    section = config.webhooks
    if not section.secret:
        if section.url:
            log.warning("%s is not set: budgets' warnings are not sent to %s", section.secret_env, section.url)
        return None
    return WebhookClient(
        section.secret, allow_private=config.security.allow_private_webhooks, timeout_s=section.timeout_s
    )


def _plan(config: Config, backends: Backends) -> Providers:
    try:
        return backends.plan(config.provider)
    except ValueError as error:  # a header or URL that HTTP can't carry
        raise ConfigError([f"provider: {error}"]) from error


def _snapshot(config: Config, backends: Backends, providers: Providers, previous: Catalog | None = None) -> Snapshot:
    by_name = backends.local | {name: backend for name, (_, _, backend) in providers.items()}
    catalog = Catalog(config, by_name, backends.context_tokens(), previous)
    return Snapshot(config, catalog, _router(catalog.policy, backends.embedder))


def _router(policy: Policy | None, embedder: "Embedder | None") -> "Router | None":
    if policy is None:
        return None
    from gateway.trained_router import router_of

    try:
        return router_of(policy, embedder.id if embedder is not None else None)
    except RoutingError as error:
        raise ConfigError([f"router: {error}"]) from error


async def _open_backends(config: Config, models: Path, stack: AsyncExitStack) -> Backends:
    """Providers' backends, and models of this process only where there are some: they are what makes it large."""
    engines: dict[str, EngineClient] = {}
    embedder: Embedder | None = None
    if config.engine or needs_embedder(config):
        from gateway.local_models import open_local_models

        engines, embedder = await open_local_models(config, models, stack)
    backends = Backends(engines, embedder)
    stack.push_async_callback(backends.aclose)
    return backends


async def _open_cache(config: Config, embedder: "Embedder | None", state: Path, stack: AsyncExitStack) -> SemanticCache:
    shared = RedisExactStore(config.store.redis_url, config.cache.ttl_s) if config.store.redis_url else None
    if shared is not None:
        stack.push_async_callback(shared.aclose)
    file = await open_file(state / "cache.db", wanted=config.cache.enabled and config.cache.persist)
    cache = SemanticCache(_cache_options(config.cache), embedder, shared, file)
    stack.push_async_callback(cache.aclose)
    await cache.load()
    return cache


def _metrics(ledger: Ledger, cache: SemanticCache, backends: Backends) -> Metrics:
    metrics = Metrics()
    metrics.watch(engine_metrics(lambda: backends.engines))
    metrics.watch(cache_metrics(cache.stats))
    metrics.watch(ledger_metrics(ledger.stats))
    return metrics


def _cache_options(cache: CacheConfig) -> CacheOptions:
    return CacheOptions(
        enabled=cache.enabled,
        semantic=cache.semantic,
        similarity_threshold=cache.similarity_threshold,
        ttl_s=cache.ttl_s,
        max_mb=cache.max_mb,
    )


def _limits(limits: LimitsConfig) -> Limits:
    return Limits(
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        concurrent_requests=limits.concurrent_requests,
    )


def _refuse_new_engines(config: Config, backends: Backends) -> None:
    faults = [
        f"model[{index}] ({model.name}).engine: {place.engine!r} is not running; it starts at the next start"
        for index, model in enumerate(config.model)
        for place in model.places
        if place.engine and place.engine not in backends.local
    ]
    if faults:
        raise ConfigError(faults)


def _say_who_is_missing(config: Config) -> None:
    """Once at start and after each edit: which providers are passed over, and what answers in their place."""
    for provider in config.provider:
        if not provider.usable:
            places = [(model, place) for model in config.model for place in model.places]
            models = ", ".join(model.name for model, place in places if place.provider == provider.name) or "no model"
            log.warning(
                "%s is not set: %s of provider %r are passed over, the tiers fall back to their next models",
                provider.api_key_env,
                models,
                provider.name,
            )
