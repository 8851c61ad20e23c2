"""Which model names exist, who serves each, and the router's policy over them. Rebuilt when the config changes."""

import fnmatch
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.config import AUTO, KINDS, Config, DeploymentConfig, ModelConfig, ModelKind, ProviderConfig
from gateway.errors import ApiError, InvalidRequestError, NotFoundError
from gateway.upstream.breaker import Breaker
from gateway.upstream.deployment import Deployment
from gateway.upstream.engine_fields import CAPABILITIES
from gateway.upstream.fleet import Fleet
from gateway.upstream.load import Load
from gateway.upstream.types import Backend, Checkable, Timeouts
from routing.types import Candidate, Policy, Rule, Tier

MAX_FLEETS = 1000  # names that a glob matched are the client's choice: the memory of them has to end somewhere
DEFAULT_MAX_OUTPUT_TOKENS = 1024  # reserved for a model that does not say


def no_model_of(kind: ModelKind) -> InvalidRequestError:
    message = f'This gateway has no model for this: it would be {KINDS[kind]} ([[model]] with kind = "{kind}").'
    return InvalidRequestError(message, param="model", code="missing_capability")


class Catalog:
    """Models by exact name first, then by glob in the config's order."""

    def __init__(
        self,
        config: Config,
        backends: Mapping[str, Backend],
        contexts: Mapping[str, int],
        previous: "Catalog | None" = None,
    ) -> None:
        """`backends` by provider or engine name; `contexts`: an engine's context length in tokens, by its name.

        Deployments of the `previous` catalog that are the same in this one keep their breakers and loads.
        """
        self._exact = {model.name: model for model in config.model if not model.is_glob}
        self._globs = [model for model in config.model if model.is_glob]
        self._kinds = {model.kind for model in config.model}
        self._backends = backends
        self._contexts = contexts
        self._native = {provider.name for provider in config.provider if provider.kind == "anthropic"}
        self._key_variables = {p.name: p.api_key_env for p in config.provider if not p.usable}
        self._providers = {provider.name: provider for provider in config.provider}
        self._fleets: dict[str, Fleet] = {}
        self._of_globs: dict[str, Fleet] = {}
        self._missing_keys = {model.name: key for model in config.model if (key := self._missing_key(model))}
        self._behind = {
            model.name: sorted([place.server, place.upstream_name] for place in model.places) for model in config.model
        }
        self._before = dict(previous._fleets) if previous is not None else {}
        self.tier_of = {model: name for name, tier in reversed(config.tier.items()) for model in tier.models}
        self.tiers = {name: tier.models for name, tier in config.tier.items()}
        self.policy = self._policy(config)
        self._behind_auto = [
            [(tier, model, self.behind(model)) for tier, models in self.tiers.items() for model in models],
            msgspec.to_builtins(config.router),
        ]

    def model(self, name: str, kind: ModelKind) -> ModelConfig:
        """The configured model behind a name that a client used. Raises NotFoundError, and InvalidRequestError for a
        kind that there is none of."""
        model = self._find(name)
        if model is None or model.kind != kind or model.name in self._missing_keys:
            raise self._refusal(name, kind, model)
        return model

    def _refusal(self, name: str, kind: ModelKind, model: ModelConfig | None) -> ApiError:
        if kind not in ("chat", "embedding") and kind not in self._kinds:
            return no_model_of(kind)
        if model is None:
            message = f"The model '{name}' does not exist or you do not have access to it."
        elif model.kind != kind:
            message = f"The model '{name}' is not {KINDS[kind]}."
        else:
            provider, variable = model.places[0].provider, self._missing_keys[model.name]
            message = f"The model '{name}' has no key for its provider '{provider}': set {variable}."
        return NotFoundError(message, param="model", code="model_not_found")

    def kind(self, name: str) -> ModelKind:
        """What a model is for; that of a name that nobody serves is a chat model's."""
        model = self._find(name)
        return model.kind if model is not None else "chat"

    def default(self, kind: ModelKind) -> str:
        """The model of a request that need not name one: the first of its kind that can be used.

        Raises InvalidRequestError.
        """
        names = [model.name for model in self._exact.values() if model.kind == kind]
        usable = [name for name in names if self.missing_key(name) is None]
        if not names:
            raise no_model_of(kind)
        return (usable or names)[0]

    def missing_key(self, name: str) -> str | None:
        """The environment variable that would make this model usable; None when one of its deployments is."""
        model = self._find(name)
        return None if model is None else self._missing_keys.get(model.name)

    def _missing_key(self, model: ModelConfig) -> str | None:
        missing = [self._key_variables.get(place.provider) for place in model.places]
        return missing[0] if all(missing) else None

    def fleet(self, name: str) -> Fleet:
        """`name` as a client wrote it. Kept, so that breakers remember; of a glob's many names, the latest ones."""
        known = self._fleets.get(name) or self._of_globs.get(name)
        return known if known is not None else self._assemble(name)

    def deployments(self, *, of_globs: bool = True) -> list[Deployment]:
        """All that have been called so far. A glob's are as many as names that clients asked for, up to a bound."""
        fleets = [*self._fleets.values(), *(self._of_globs.values() if of_globs else ())]
        return [deployment for fleet in fleets for deployment in fleet.deployments]

    def _assemble(self, name: str) -> Fleet:
        model = self._find(name)
        assert model is not None, "candidates come from this catalog"
        usable = [place for place in model.places if place.provider not in self._key_variables]
        fleet = Fleet([self._deploy(name, place) for place in usable or model.places], model.balance)
        if not model.is_glob:
            self._fleets[name] = fleet
            return fleet
        if len(self._of_globs) >= MAX_FLEETS:
            del self._of_globs[next(iter(self._of_globs))]
        self._of_globs[name] = fleet
        return fleet

    def _deploy(self, name: str, place: DeploymentConfig) -> Deployment:
        backend, upstream_model = self._backends[place.server], place.upstream_name or name
        provider = self._providers.get(place.provider)
        breaker, load = self._memory(name, backend, upstream_model)
        asks = provider is not None and provider.health_check == "models"
        return Deployment(
            model=name,
            backend=backend,
            upstream_model=upstream_model,
            breaker=breaker,
            max_retries=provider.max_retries if provider else 0,
            timeouts=self._timeouts(name, provider) if provider else None,
            weight=place.weight,
            load=load,
            check=backend.check if asks and isinstance(backend, Checkable) else None,
        )

    def _timeouts(self, name: str, provider: ProviderConfig) -> Timeouts:
        """The model's own, else its provider's."""
        model = self._find(name)
        assert model is not None
        return Timeouts(
            first_token_s=model.first_token_timeout_s or provider.first_token_timeout_s,
            idle_s=model.idle_timeout_s or provider.idle_timeout_s,
            total_s=model.total_timeout_s or provider.total_timeout_s,
        )

    def _memory(self, name: str, backend: Backend, upstream_model: str) -> tuple[Breaker, Load]:
        """What an earlier catalog knew of the same deployment."""
        before = self._before.get(name)
        for known in before.deployments if before is not None else ():
            if known.backend is backend and known.upstream_model == upstream_model:
                return known.breaker, known.load
        return Breaker(), Load()

    def behind(self, name: str) -> Any:
        """What answers to a name at present. With another config, what is stored now belongs to another question."""
        if name == AUTO:
            return self._behind_auto
        model = self._find(name)
        return None if model is None else self._behind[model.name]

    def context_tokens(self, name: str) -> int | None:
        """How much a model holds: as configured, else the least of its engines; None where nobody knows."""
        model = self._find(name)
        if model is None:
            return None
        engines = [self._contexts[place.engine] for place in model.places if place.engine in self._contexts]
        return model.context_tokens or min(engines, default=None)

    def max_output_tokens(self, name: str) -> int:
        model = self._find(name)
        return (model.max_output_tokens if model else None) or DEFAULT_MAX_OUTPUT_TOKENS

    def _find(self, name: str) -> ModelConfig | None:
        return self._exact.get(name) or next((m for m in self._globs if fnmatch.fnmatchcase(name, m.name)), None)

    def listing(self) -> list[tuple[str, str]]:
        """What a client may ask for, with who serves it, `auto` first; globs stand for names we can't list."""
        usable = [model for model in self._exact.values() if self.missing_key(model.name) is None]
        models = [(model.name, model.places[0].server) for model in usable]
        return [(AUTO, "tollhouse"), *models] if self.tiers else models

    def _policy(self, config: Config) -> Policy | None:
        if not config.tier:
            return None
        usable = {
            name: tuple(model for model in tier.models if self.missing_key(model) is None)
            for name, tier in config.tier.items()
        }
        router = config.router
        default = router.default_tier or next(iter(config.tier))
        return Policy(
            tiers=tuple(
                Tier(name=name, models=usable[name], tasks=tier.tasks, min_probability=tier.min_probability)
                for name, tier in config.tier.items()
            ),
            candidates={model: self._candidate(model) for models in usable.values() for model in models},
            default_tier=default,
            fallback_tier=router.fallback_tier or default,
            quality=router.quality,
            min_confidence=router.min_confidence,
            rules=tuple(
                Rule(
                    tier=rule.tier,
                    name=rule.name,
                    task=rule.task,
                    contains=rule.contains,
                    min_prompt_tokens=rule.min_prompt_tokens,
                    max_prompt_tokens=rule.max_prompt_tokens,
                )
                for rule in router.rules
            ),
        )

    def _candidate(self, name: str) -> Candidate:
        model = self._exact[name]
        alone = all(place.engine for place in model.places)  # a provider beside them may not be able to do as much
        capabilities = frozenset(model.capabilities) | (CAPABILITIES if alone else frozenset())
        if all(place.provider in self._native for place in model.places):
            capabilities |= {"messages"}  # all that Anthropic's clients may ask for
        return Candidate(model=name, capabilities=capabilities, context_tokens=self.context_tokens(name))
