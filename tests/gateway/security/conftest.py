"""The whole application in this process, with an embedder, for tenants who try to learn of each other."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import create_app
from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.faults.misbehaviours import STOP, chunk, completion
from tests.gateway.security.world import Site

CONFIG = """
[embedding]
model = "{minilm}"
[cache]
similarity_threshold = 0.8
[router]
default_tier = "near"
fallback_tier = "far"
[[provider]]
name = "upstream"
base_url = "{upstream}"
max_retries = 0
[[model]]
name = "echo"
provider = "upstream"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
[tier.near]
models = ["echo"]
tasks = ["chat"]
[tier.far]
models = ["echo"]
"""


async def echo(wire: Wire) -> None:
    """Answers with what it was asked, and nothing but that makes its answer."""
    asked = json.dumps(wire.request.json["messages"], sort_keys=True)
    if not wire.request.json.get("stream"):
        await wire.json(completion(asked))
        return
    await wire.start_events()
    for event in (chunk({"role": "assistant", "content": asked}), STOP):
        await wire.event(event)
    await wire.end()


@pytest.fixture(scope="session")
async def site(anyio_backend: str, minilm_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("apart")
    config = folder / "config.toml"
    with MisbehavingUpstream({"ok": echo, "echo": echo}) as upstream, pytest.MonkeyPatch.context() as patched:
        config.write_text(CONFIG.format(minilm=minilm_path, upstream=upstream.base_url))
        patched.setenv("TOLLHOUSE_HOME", str(folder))
        app: Any = create_app(config)
        async with app.lifespan():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60) as client:
                yield Site(app.state.house, client, upstream)
