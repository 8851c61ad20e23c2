"""Which model names exist, who serves each, and the router's policy over them. Rebuilt when the config changes."""

import fnmatch
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.config import AUTO, Config, ModelConfig
from gateway.errors import NotFoundError
from gateway.upstream.attempts import Deployment
from gateway.upstream.breaker import Breaker
from gateway.upstream.engine_fields import CAPABILITIES
from gateway.upstream.types import Backend
from routing.types import Candidate, Policy, Rule, Tier

MAX_DEPLOYMENTS = 1000  # names that a glob matched are the client's choice: the memory of them has to end somewhere
DEFAULT_MAX_OUTPUT_TOKENS = 1024  # reserved for a model that does not say


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

        Deployments of the `previous` catalog that are the same in this one keep their breakers.
        """
        self._exact = {model.name: model for model in config.model if not model.is_glob}
        self._globs = [model for model in config.model if model.is_glob]
        self._backends = backends
        self._contexts = contexts
        self._key_variables = {p.name: p.api_key_env for p in config.provider if not p.usable}
        self._retries = {provider.name: provider.max_retries for provider in config.provider}
        self._timeouts = {provider.name: provider.total_timeout_s for provider in config.provider}
        self._deployments: dict[str, Deployment] = {}
        self._of_globs: dict[str, Deployment] = {}
        self._before = dict(previous._deployments) if previous is not None else {}
        self.tier_of = {model: name for name, tier in reversed(config.tier.items()) for model in tier.models}
        self.tiers = {name: tier.models for name, tier in config.tier.items()}
        self.policy = self._policy(config)
        self._behind_auto = [
            [(tier, model, self.behind(model)) for tier, models in self.tiers.items() for model in models],
            msgspec.to_builtins(config.router),
        ]

    def model(self, name: str, kind: str) -> ModelConfig:
        """The configured model behind a name that a client used, or NotFoundError."""
        model = self._find(name)
        if model is None:
            raise NotFoundError(
                f"The model '{name}' does not exist or you do not have access to it.",
                param="model",
                code="model_not_found",
            )
        if (model.kind == "embedding") != (kind == "embedding"):
            wanted = "an embedding model" if kind == "embedding" else "a chat model"
            raise NotFoundError(f"The model '{name}' is not {wanted}.", param="model", code="model_not_found")
        if variable := self.missing_key(name):
            message = f"The model '{name}' has no key for its provider '{model.provider}': set {variable}."
            raise NotFoundError(message, param="model", code="model_not_found")
        return model

    def missing_key(self, name: str) -> str | None:
        """The environment variable that would make this model usable; None when it is usable."""
        model = self._find(name)
        return self._key_variables.get(model.provider) if model else None

    def deployment(self, name: str) -> Deployment:
        """`name` as a client wrote it. Kept, so that its breaker remembers; of a glob's many names, the latest ones."""
        known = self._deployments.get(name) or self._of_globs.get(name)
        return known if known is not None else self._deploy(name)

    def _deploy(self, name: str) -> Deployment:
        model = self._find(name)
        assert model is not None, "candidates come from this catalog"
        server = model.engine or model.provider
        deployment = Deployment(
            model=name,
            backend=self._backends[server],
            upstream_model=model.upstream_name or name,
            max_retries=self._retries.get(server, 0),
            total_timeout_s=self._timeouts.get(server),
            breaker=self._breaker(name, self._backends[server], model.upstream_name or name),
        )
        if not model.is_glob:
            self._deployments[name] = deployment
            return deployment
        if len(self._of_globs) >= MAX_DEPLOYMENTS:
            del self._of_globs[next(iter(self._of_globs))]
        self._of_globs[name] = deployment
        return deployment

    def _breaker(self, name: str, backend: Backend, upstream_model: str) -> Breaker:
        before = self._before.get(name)
        unchanged = before is not None and before.backend is backend and before.upstream_model == upstream_model
        return before.breaker if before is not None and unchanged else Breaker()

    def behind(self, name: str) -> Any:
        """What answers to a name at present. With another config, what is stored now belongs to another question."""
        if name == AUTO:
            return self._behind_auto
        model = self._find(name)
        return [model.engine or model.provider, model.upstream_name] if model else None

    def max_output_tokens(self, name: str) -> int:
        model = self._find(name)
        return (model.max_output_tokens if model else None) or DEFAULT_MAX_OUTPUT_TOKENS

    def _find(self, name: str) -> ModelConfig | None:
        return self._exact.get(name) or next((m for m in self._globs if fnmatch.fnmatchcase(name, m.name)), None)

    def listing(self) -> list[tuple[str, str]]:
        """What a client may ask for, with who serves it, `auto` first; globs stand for names we can't list."""
        models = [(m.name, m.engine or m.provider) for m in self._exact.values() if self.missing_key(m.name) is None]
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
        context = model.context_tokens or self._contexts.get(model.engine)
        capabilities = frozenset(model.capabilities) | (CAPABILITIES if model.engine else frozenset())
        return Candidate(model=name, capabilities=capabilities, context_tokens=context)
