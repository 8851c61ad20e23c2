"""The models of this process, engines and embedder, loaded side by side. They bring numpy along and, started, torch."""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path

from engine.client import EngineClient
from gateway.config import Config
from gateway.engine_check import engine_options
from gateway.loading_bar import loading_bars
from gateway.models.needs import needs_embedder
from gateway.models.sources import resolve
from semcache.embedder import Embedder

log = logging.getLogger("tollhouse.build")


async def open_local_models(
    config: Config, models: Path, stack: AsyncExitStack
) -> tuple[dict[str, EngineClient], Embedder | None]:
    """Engines by name, and the embedder if something needs it; `stack` closes them. Raises the parts' own errors."""
    started = time.perf_counter()
    embedder = _embedder(config, models)
    options = {engine.name: engine_options(engine, resolve(engine.model, models)) for engine in config.engine}
    engines = {name: EngineClient(each) for name, each in options.items()}
    for client in engines.values():
        stack.push_async_callback(client.aclose)
    if embedder is not None:
        stack.push_async_callback(embedder.aclose)
        await embedder.start()
    with loading_bars() as bar:
        await asyncio.gather(*(client.start(bar(name)) for name, client in engines.items()))
    log.info("models loaded in %.1f s", time.perf_counter() - started)
    return engines, embedder


def _embedder(config: Config, models: Path) -> Embedder | None:
    if not needs_embedder(config):
        return None
    section = config.embedding
    path = resolve(section.model, models)
    return Embedder(path, max_batch_size=section.max_batch_size, max_wait_ms=section.max_wait_ms)
