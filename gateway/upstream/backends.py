"""All that can answer, by name: engines and embedder for good, providers until an edit of the config."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gateway.config import EMBEDDER, ProviderConfig
from gateway.upstream.anthropic_backend import AnthropicBackend
from gateway.upstream.azure_backend import AzureBackend
from gateway.upstream.http_backend import HttpBackend
from gateway.upstream.types import Backend

if TYPE_CHECKING:
    from engine.client import EngineClient
    from semcache.embedder import Embedder

log = logging.getLogger("tollhouse.upstream")

Providers = dict[str, tuple[ProviderConfig, str, HttpBackend]]  # what it was made from (config, key), and the backend
KINDS = {"openai": HttpBackend, "azure": AzureBackend, "anthropic": AnthropicBackend}
LINGER_S = 600.0  # a provider that was replaced may have answers under way


class Backends:
    def __init__(self, engines: "Mapping[str, EngineClient]", embedder: "Embedder | None") -> None:
        self.engines = engines
        self.embedder = embedder
        self._local: dict[str, Backend] = {}
        if engines:
            from gateway.upstream.engine_backend import EngineBackend

            self._local = {name: EngineBackend(name, client) for name, client in engines.items()}
        if embedder is not None:
            from gateway.upstream.embedder_backend import EmbedderBackend  # numpy comes with it

            self._local[EMBEDDER] = EmbedderBackend(EMBEDDER, embedder)
        self._providers: Providers = {}
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def local(self) -> dict[str, Backend]:
        return dict(self._local)

    def plan(self, providers: Sequence[ProviderConfig]) -> Providers:
        """Backends for these providers; those that did not change keep their connections. Changes nothing yet."""
        plan: Providers = {}
        for provider in providers:
            known = self._providers.get(provider.name)
            unchanged = known is not None and known[:2] == (provider, provider.api_key)
            if known is None or not unchanged:
                known = (provider, provider.api_key, KINDS[provider.kind](provider))
            plan[provider.name] = known
        return plan

    def adopt(self, plan: Providers) -> None:
        """Puts a plan in force; backends that are not in it finish what they are answering."""
        kept = {id(backend) for _, _, backend in plan.values()}
        for _, _, backend in self._providers.values():
            if id(backend) not in kept:
                self._dismiss(backend)
        self._providers = plan

    def context_tokens(self) -> dict[str, int]:
        """What each engine's context holds, by the engine's name."""
        return {name: client.info.context_length for name, client in self.engines.items()}

    async def aclose(self) -> None:
        for task in self._leaving:
            task.cancel()
        for local in self._local.values():
            await local.aclose()
        for _, _, backend in self._providers.values():
            await backend.aclose()

    def _dismiss(self, backend: HttpBackend) -> None:
        async def close_later() -> None:
            try:
                await asyncio.sleep(LINGER_S)
            finally:
                await backend.aclose()

        task = asyncio.get_running_loop().create_task(close_later())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
