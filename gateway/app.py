"""The ASGI application: opens the house that `gateway.build` makes of a config, serves it, closes it."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from litestar import Litestar

from gateway import config as configuration
from gateway.api.admin import admin_handlers
from gateway.api.batches import cancel_batch, create_batch, list_batches, retrieve_batch
from gateway.api.dashboard import dashboard, dashboard_data
from gateway.api.errors import to_api_shape
from gateway.api.files import create_file, delete_file, file_content, list_files, retrieve_file
from gateway.api.health import live, metrics, ready
from gateway.api.inference import chat_completions, completions, embeddings
from gateway.api.messages import count_message_tokens, messages
from gateway.api.models import list_models, retrieve_model
from gateway.api.passing import images, moderations, speech, transcriptions, translations
from gateway.api.responses import (
    cancel_response,
    create_response,
    delete_response,
    list_input_items,
    retrieve_response,
)
from gateway.api.tokens import detokenize_tokens, tokenize_text
from gateway.batches.worker import Worker
from gateway.build import apply, open_house
from gateway.front import Application
from gateway.heartbeat import Heartbeat
from gateway.pipeline import Pipeline
from gateway.reload import ConfigWatcher
from gateway.telemetry.log import configure_logging

log = logging.getLogger("tollhouse.app")

HANDLERS = [
    chat_completions,
    completions,
    embeddings,
    messages,
    count_message_tokens,
    list_models,
    retrieve_model,
    create_response,
    retrieve_response,
    cancel_response,
    delete_response,
    list_input_items,
    moderations,
    speech,
    transcriptions,
    translations,
    images,
    tokenize_text,
    detokenize_tokens,
    create_file,
    list_files,
    retrieve_file,
    file_content,
    delete_file,
    create_batch,
    list_batches,
    retrieve_batch,
    cancel_batch,
    live,
    ready,
    metrics,
    dashboard,
    dashboard_data,
]


def create_app(config_path: Path | None = None) -> Application:
    """The ASGI application. Without a path, TOLLHOUSE_CONFIG or ./config.toml is read. Raises ConfigError."""
    path = config_path or Path(os.environ.get("TOLLHOUSE_CONFIG", "config.toml"))
    config = configuration.load(path)
    configure_logging()
    return Application(
        route_handlers=[*HANDLERS, *admin_handlers()],
        lifespan=[_lifespan(path, config)],
        exception_handlers={Exception: to_api_shape},
        request_max_body_size=int(config.server.max_body_mb * 1_000_000),
        openapi_config=None,
        logging_config=None,
    )


def _lifespan(
    path: Path, config: configuration.Config
) -> Callable[[Litestar], contextlib.AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def run(app: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            house = await open_house(config, stack)
            app.state.house = house
            app.state.pipeline = pipeline = Pipeline(house)
            app.state.doors = house.doors
            app.state.heartbeat = partial(
                Heartbeat, interval_s=config.server.sse_keepalive_s, patience_s=config.server.slow_client_timeout_s
            )
            app.state.patience_s = config.server.slow_client_timeout_s
            app.state.max_body_bytes = int(config.server.max_body_mb * 1_000_000)
            watcher = ConfigWatcher(path, config, partial(apply, house))
            task = asyncio.create_task(watcher.run(), name="config-watcher")
            stack.callback(task.cancel)
            worker = Worker(house, pipeline)
            stack.push_async_callback(worker.aclose)
            await worker.start()
            stack.enter_context(_calm_garbage_collector())
            house.ready = True
            yield
            house.ready = False

    return run


@contextlib.contextmanager
def _calm_garbage_collector() -> Iterator[None]:
    """What lives as long as the process is looked at no more, and the rest less often: requests leave few cycles.

    With Python's own thresholds, collections took a tenth of the proxy path's time and were its longest pauses. At the
    end all is as before: what is frozen at exit is never given back, and extension modules complain of that.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    with contextlib.suppress(OSError, AttributeError):  # glibc's alone: what the start needed and nobody does any more
        ctypes.CDLL(None).malloc_trim(0)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
