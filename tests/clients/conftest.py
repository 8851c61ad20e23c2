"""A gateway with a bundled engine and a good provider, and clients that each run in an environment of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.good_behaviour import GOOD
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.server import Gateway

CONFIG = """
[cache]
enabled = false

[embedding]
model = "{minilm}"

[[engine]]
name = "local"
model = "{smollm2}"
kv_cache_mb = 256

[[provider]]
name = "upstream"
base_url = "{upstream}"
max_retries = 0

[[model]]
name = "smollm2"
engine = "local"

[[model]]
name = "minilm"
engine = "embedder"
kind = "embedding"

[[model]]
name = "probe/*"
provider = "upstream"

[[model]]
name = "embed/*"
provider = "upstream"
kind = "embedding"
"""


@pytest.fixture(scope="session")
def upstream() -> Iterator[MisbehavingUpstream]:
    server = MisbehavingUpstream(GOOD)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def gateway(
    upstream: MisbehavingUpstream, smollm2_path: Path, minilm_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    config = folder / "config.toml"
    config.write_text(CONFIG.format(smollm2=smollm2_path, minilm=minilm_path, upstream=upstream.base_url))
    with Gateway(config, folder / "home") as running:
        yield running


@pytest.fixture(scope="session")
def key(gateway: Gateway) -> str:
    return gateway.key("acme")
