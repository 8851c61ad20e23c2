"""Whether the names in a config that point at each other meet."""

import ipaddress
from collections.abc import Iterator

from gateway.config import AUTO, EMBEDDER, KINDS, Config, DeploymentConfig, ModelConfig
from gateway.config_check import ConfigError, suggest
from gateway.upstream.address_guard import ForbiddenAddress, Guard, check_url


def check_references(config: Config) -> None:
    """Raises ConfigError with every fault found."""
    faults = [
        *_names(config),
        *_models(config),
        *_timeouts(config),
        *_prices(config),
        *_tiers(config),
        *_baseline(config),
        *_proxies(config),
        *_addresses(config),
        *_azure(config),
        *_passed_through(config),
    ]
    if faults:
        raise ConfigError(faults)


def _names(config: Config) -> Iterator[str]:
    engines = [engine.name for engine in config.engine]
    providers = [provider.name for provider in config.provider]
    models = [model.name for model in config.model]
    for what, names in (("engine", engines), ("provider", providers), ("model", models)):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{what}: {name!r} is defined more than once"
    for name in set(engines) & set(providers):
        yield f"provider: {name!r} is also the name of an engine"
    if not models:
        yield "model: there is no [[model]], and so nothing that a client could ask for"
    for what, names in (("engine", engines), ("provider", providers)):
        if EMBEDDER in names:
            yield f"{what}: {EMBEDDER!r} is the name of the bundled embedder; choose another"
    if AUTO in models:
        yield f"model: {AUTO!r} is what clients say to leave the choice to the router; choose another name"


def _models(config: Config) -> Iterator[str]:
    for index, model in enumerate(config.model):
        where = f"model[{index}] ({model.name})"
        if not model.deployments:
            if bool(model.provider) == bool(model.engine):
                yield f"{where}: give exactly one of provider and engine, or deployments"
            else:
                yield from _server(config, where, model.places[0])
        elif model.provider or model.engine or model.upstream_name:
            yield f"{where}: provider, engine and upstream_name stand in each of its deployments"
        else:
            yield from _deployments(config, where, model)


def _timeouts(config: Config) -> Iterator[str]:
    for index, model in enumerate(config.model):
        if any(place.provider for place in model.places):
            continue
        for name in ("first_token_timeout_s", "idle_timeout_s", "total_timeout_s"):
            if getattr(model, name) is not None:
                yield f"model[{index}] ({model.name}).{name}: only a provider is waited for so long; an engine is ours"


def _deployments(config: Config, where: str, model: ModelConfig) -> Iterator[str]:
    for index, place in enumerate(model.deployments):
        here = f"{where}.deployments[{index}]"
        if bool(place.provider) == bool(place.engine):
            yield f"{here}: give exactly one of provider and engine"
            continue
        yield from _server(config, here, place)
        if place.prices and model.is_glob:
            yield f"{here}: a glob's price is the model's; give the models their own names for prices of their own"
        namesakes = [other for other in model.deployments if other.server == place.server]
        if any(other.prices != place.prices for other in namesakes):
            yield f"{here}: the deployments at {place.server!r} have one price; use a provider for each"
        if (place.server, place.upstream_name) in {(p.server, p.upstream_name) for p in model.deployments[:index]}:
            yield f"{here}: the same as one before it; give one of them a larger weight"


def _prices(config: Config) -> Iterator[str]:
    for index, model in enumerate(config.model):
        where = f"model[{index}] ({model.name})"
        places = {f"{where}.deployments[{number}]": place for number, place in enumerate(model.deployments)}
        for here, priced in {where: model, **places}.items():
            if priced.usd_per_hour is not None and len(priced.prices) > 1:
                yield f"{here}: give prices of tokens or usd_per_hour, not both"
        for here, place in (places or {where: model.places[0]}).items():
            hour = place.usd_per_hour if place.prices else model.usd_per_hour
            if hour is not None and place.engine in ("", EMBEDDER):
                yield f"{here}: only the time of an [[engine]] is measured, so only that has a usd_per_hour"


def _server(config: Config, where: str, place: DeploymentConfig) -> Iterator[str]:
    engines = [engine.name for engine in config.engine]
    providers = [provider.name for provider in config.provider]
    if place.provider and place.provider not in providers:
        yield f"{where}.provider: no provider named {place.provider!r}{suggest(place.provider, providers)}"
    elif place.engine and place.engine not in [*engines, EMBEDDER]:
        yield f"{where}.engine: no engine named {place.engine!r}{suggest(place.engine, engines)}"


def _tiers(config: Config) -> Iterator[str]:
    models = {model.name: model for model in config.model}
    for name, tier in config.tier.items():
        for model_name in tier.models:
            model = models.get(model_name)
            if model is None:
                yield f"tier.{name}.models: no model named {model_name!r}{suggest(model_name, models)}"
            elif model.is_glob:
                yield f"tier.{name}.models: {model_name!r} is a glob; name the models themselves"
            elif model.kind != "chat":
                yield f"tier.{name}.models: {model_name!r} is {KINDS[model.kind]}; tiers are for chat"
    wanted = {"router.default_tier": config.router.default_tier, "router.fallback_tier": config.router.fallback_tier}
    wanted |= {f"router.rules[{i}].tier": rule.tier for i, rule in enumerate(config.router.rules)}
    for where, name in wanted.items():
        if name and name not in config.tier:
            yield f"{where}: no tier named {name!r}{suggest(name, config.tier)}"


def _baseline(config: Config) -> Iterator[str]:
    models = [model.name for model in config.model]
    if config.baseline_model and config.baseline_model not in models:
        yield f"baseline_model: no model named {config.baseline_model!r}{suggest(config.baseline_model, models)}"


def _passed_through(config: Config) -> Iterator[str]:
    speaking = {provider.name for provider in config.provider if provider.kind != "anthropic"}
    for index, model in enumerate(config.model):
        if model.kind not in ("chat", "embedding") and not all(place.provider in speaking for place in model.places):
            where = f"model[{index}] ({model.name}).kind"
            yield f"{where}: {KINDS[model.kind]} is passed through to a provider that speaks OpenAI's API"


def _azure(config: Config) -> Iterator[str]:
    for index, provider in enumerate(config.provider):
        if provider.kind == "azure" and "/openai" in provider.base_url:
            where = f"provider[{index}] ({provider.name}).base_url"
            yield f'{where}: give the resource without /openai; where the URL ends in /openai/v1, the kind is "openai"'


def _addresses(config: Config) -> Iterator[str]:
    """What can be said before a name is resolved; the rest is checked whenever a connection is made."""
    guard: Guard = "not-metadata" if config.security.allow_private_webhooks else "public"
    urls: list[tuple[str, str, Guard]] = [
        (f"provider[{index}] ({provider.name}).base_url", provider.base_url, "not-metadata")
        for index, provider in enumerate(config.provider)
    ]
    for where, url, allowed in [*urls, ("webhooks.url", config.webhooks.url, guard)]:
        try:
            if url:
                check_url(url, allowed)
        except ForbiddenAddress as error:
            yield f"{where}: {error}"


def _proxies(config: Config) -> Iterator[str]:
    for index, text in enumerate(config.server.trusted_proxies):
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            yield f"server.trusted_proxies[{index}]: {text!r} is no range such as 10.0.0.0/8 ({error})"
