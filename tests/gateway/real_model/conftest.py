"""SmolLM2 in an engine that all tests of this folder share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.client import EngineClient
from engine.types import EngineOptions
from gateway.upstream.engine_backend import EngineBackend
from tests.gateway.engine_requests import idle

CONTEXT = 1024


@pytest.fixture(scope="package")
async def client(smollm2_path: Path, anyio_backend: str) -> AsyncIterator[EngineClient]:
    client = EngineClient(
        EngineOptions(model=str(smollm2_path), kv_cache_mb=96, max_model_len=CONTEXT, max_wait_ms=0, lark_grammars=True)
    )
    await client.start()
    yield client
    await client.aclose()


@pytest.fixture
async def backend(client: EngineClient) -> AsyncIterator[EngineBackend]:
    """Afterwards nothing may run any more, and no block may be held."""
    yield EngineBackend("local", client)
    await idle(client)
    client.check_integrity()
