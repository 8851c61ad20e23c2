"""A gateway that only passes on, with a misbehaving upstream behind it."""

from collections.abc import Iterator

import pytest

from tests.faults.misbehaving import MisbehavingUpstream
from tests.faults.misbehaviours import SCRIPTS
from tests.support.server import Gateway

CONFIG = """
[cache]
semantic = false

[[provider]]
name = "upstream"
base_url = "{upstream}"
max_retries = 0
connect_timeout_s = 2.0
first_token_timeout_s = 2.0
idle_timeout_s = 2.0
total_timeout_s = 20.0

[[model]]
name = "probe/*"
provider = "upstream"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0

[[model]]
name = "embed/*"
provider = "upstream"
kind = "embedding"
"""


@pytest.fixture(scope="session")
def upstream() -> Iterator[MisbehavingUpstream]:
    server = MisbehavingUpstream(SCRIPTS)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def gateway(upstream: MisbehavingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    config = folder / "config.toml"
    config.write_text(CONFIG.format(upstream=upstream.base_url))
    with Gateway(config, folder / "home") as running:
        yield running


@pytest.fixture(scope="session")
def key(gateway: Gateway) -> str:
    return gateway.key("probes")
