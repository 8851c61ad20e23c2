"""A gateway in this very process, with its books in a folder of the test's own, and an upstream that misbehaves."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.config import ProviderConfig
from gateway.store.database import Database
from gateway.telemetry.log import lines
from gateway.upstream.http_backend import HttpBackend
from tests.faults.misbehaving import MisbehavingUpstream
from tests.faults.misbehaviours import SCRIPTS
from tests.support.attempts import House
from tests.support.in_process import CONFIG, Gate, open_gate

OpenGate = Callable[[str], Awaitable[Gate]]
TIERS = """
[router]
default_tier = "small"
fallback_tier = "small"
[[router.rules]]
name = "long prompts"
tier = "large"
min_prompt_tokens = 2000
[[model]]
name = "big"
provider = "upstream"
upstream_name = "ok"
input_usd_per_mtok = 5.0
output_usd_per_mtok = 5.0
context_tokens = 8000
capabilities = ["tools"]
[[model]]
name = "locked"
provider = "keyless"
[tier.small]
models = ["dear", "dead"]
[tier.shaky]
models = ["dead", "dear"]
[tier.large]
models = ["locked", "big"]
"""


@pytest.fixture(autouse=True)
def lines_of_its_own() -> Iterator[None]:
    """No line of a test's log waits until another test listens."""
    yield
    lines.write()


@pytest.fixture(scope="session")
def empty_books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first gateway leaves its empty database for all others: the migrations are tested elsewhere."""
    return tmp_path_factory.mktemp("books") / "tollhouse.db"


@pytest.fixture(scope="session")
def _running_upstream() -> Iterator[MisbehavingUpstream]:
    with MisbehavingUpstream(SCRIPTS) as running:
        yield running


@pytest.fixture
async def database(anyio_backend: Any, database_url: str) -> AsyncIterator[Database]:
    """An empty one with its tables; once each of both kinds."""
    opened = Database(database_url)
    await opened.open()
    yield opened
    await opened.aclose()


@pytest.fixture
def own_upstream() -> Iterator[MisbehavingUpstream]:
    """For tests that count connections, or break them."""
    with MisbehavingUpstream(SCRIPTS) as running:
        yield running


@pytest.fixture
async def house(
    anyio_backend: Any, own_upstream: MisbehavingUpstream, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[House]:
    """A provider of its own, with limits that a test can wait for."""
    monkeypatch.setenv("MOCK_KEY", "sk-provider-secret")
    limits = {"connect_timeout_s": 1.0, "first_token_timeout_s": 0.4, "idle_timeout_s": 0.3, "total_timeout_s": 3.0}
    backend = HttpBackend(ProviderConfig(name="mock", base_url=own_upstream.base_url, api_key_env="MOCK_KEY", **limits))
    yield House(own_upstream, backend)
    await backend.aclose()


@pytest.fixture
def upstream(_running_upstream: MisbehavingUpstream) -> MisbehavingUpstream:
    """It has received nothing yet."""
    _running_upstream.received.clear()
    return _running_upstream


@pytest.fixture
async def gate_with(
    anyio_backend: Any,
    upstream: MisbehavingUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    empty_books: Path,
) -> AsyncIterator[OpenGate]:
    """Opens a gateway over a config; `{upstream}` in it is the upstream's address."""
    monkeypatch.setenv("TOLLHOUSE_HOME", str(tmp_path))
    books = tmp_path / "tollhouse.db"
    async with AsyncExitStack() as stack:

        async def open_one(config_text: str) -> Gate:
            if empty_books.exists():
                _copy(empty_books, books)
            gate = await open_gate(stack, upstream, config_text)
            if not empty_books.exists():
                _copy(books, empty_books)
            await gate.start_over()
            return gate

        yield open_one


@pytest.fixture
async def fresh_gate(gate_with: OpenGate) -> Gate:
    """For tests that change the config, or count what a gateway has ever done."""
    return await gate_with(CONFIG)


@pytest.fixture
async def gate(_shared_gate: Gate, upstream: MisbehavingUpstream) -> Gate:
    """One gateway for many tests, each with a tenant of its own: to open one takes longer than what most of them do."""
    await _shared_gate.start_over()
    return _shared_gate


@pytest.fixture(scope="session")
def learned_config(minilm_path: Path) -> str:
    """With tiers to choose from, and an embedder for cache and router."""
    semantic = f'similarity_threshold = 0.85\n[embedding]\nmodel = "{minilm_path}"'
    return CONFIG.replace("semantic = false", semantic) + TIERS


@pytest.fixture(scope="session")
async def _shared_gate(
    anyio_backend: Any, _running_upstream: MisbehavingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gate]:
    async with AsyncExitStack() as stack:
        yield await _open_in(tmp_path_factory.mktemp("shared"), stack, _running_upstream, CONFIG)


@pytest.fixture(scope="session")
async def _learned_gate(
    anyio_backend: Any,
    _running_upstream: MisbehavingUpstream,
    learned_config: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Gate]:
    async with AsyncExitStack() as stack:
        yield await _open_in(tmp_path_factory.mktemp("learned"), stack, _running_upstream, learned_config)


@pytest.fixture
async def learned(_learned_gate: Gate, upstream: MisbehavingUpstream) -> Gate:
    """The one gateway with an embedder; each test has a tenant of its own."""
    await _learned_gate.start_over()
    return _learned_gate


async def _open_in(home: Path, stack: AsyncExitStack, upstream: MisbehavingUpstream, config_text: str) -> Gate:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TOLLHOUSE_HOME", str(home))
        return await open_gate(stack, upstream, config_text)


def _copy(source: Path, target: Path) -> None:
    with sqlite3.connect(source) as old, sqlite3.connect(target) as new:
        old.backup(new)
