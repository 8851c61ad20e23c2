"""The fixtures of a folder whose tests go through a real server: an upstream, a gateway in front of it, a key."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.faults.misbehaving import MisbehavingUpstream, Script
from tests.support.server import Gateway

MODELS = ("minilm", "smollm2")


def served(config: str, scripts: Mapping[str, Script]) -> tuple[Any, Any, Any]:
    """`upstream, gateway, key = served(CONFIG, SCRIPTS)` in a conftest: one of each for all tests below it.

    `{upstream}` in the config is the upstream's address; `{minilm}` and `{smollm2}` are the models' paths, and only
    what the config names is pulled.
    """

    @pytest.fixture(scope="session")
    def upstream() -> Iterator[MisbehavingUpstream]:
        with MisbehavingUpstream(dict(scripts)) as running:
            yield running

    @pytest.fixture(scope="session")
    def gateway(
        upstream: MisbehavingUpstream, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Gateway]:
        models = {name: request.getfixturevalue(f"{name}_path") for name in MODELS if f"{{{name}}}" in config}
        text = config.format(upstream=upstream.base_url, **models)
        with Gateway.over(text, tmp_path_factory.mktemp("gateway")) as running:
            yield running

    @pytest.fixture(scope="session")
    def key(gateway: Gateway) -> str:
        return gateway.key("acme")

    return upstream, gateway, key
