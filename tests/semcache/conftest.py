"""A real embedder for the tests of the cache, started once per test that asks for it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from semcache.embedder import Embedder


@pytest.fixture
async def embedder(minilm_path: Path, anyio_backend: str) -> AsyncIterator[Embedder]:
    running = Embedder(str(minilm_path))
    await running.start()
    yield running
    await running.aclose()
