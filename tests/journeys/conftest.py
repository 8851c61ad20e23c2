"""One gateway with the real models, and a misbehaving upstream behind it, for all journeys that only look."""

from collections.abc import Iterator

import openai
import pytest

from tests.faults.anthropic_behaviours import CLAUDES
from tests.faults.good_behaviour import GOOD
from tests.support.probes import EMBED, PROBE
from tests.support.served import served
from tests.support.server import Gateway

CONFIG = (
    """
baseline_model = "big"

[embedding]
model = "{minilm}"

[cache]
similarity_threshold = 0.85

[router]
default_tier = "small"
fallback_tier = "medium"

[[engine]]
name = "local"
model = "{smollm2}"
kv_cache_mb = 256

[[provider]]
name = "upstream"
base_url = "{upstream}"
max_retries = 0
first_token_timeout_s = 5.0

[[provider]]
name = "keyless"
base_url = "{upstream}"
api_key_env = "A_KEY_THAT_NOBODY_SETS"

[[provider]]
name = "anthropic"
kind = "anthropic"
base_url = "{upstream}"
max_retries = 0

[[model]]
name = "claude*"
provider = "anthropic"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0

[[model]]
name = "smollm2"
engine = "local"
input_usd_per_mtok = 0.01
output_usd_per_mtok = 0.02

[[model]]
name = "minilm"
engine = "embedder"
kind = "embedding"
input_usd_per_mtok = 0.001

[[model]]
name = "big"
provider = "keyless"
input_usd_per_mtok = 2.5
output_usd_per_mtok = 10.0

[[model]]
name = "broken"
provider = "upstream"
upstream_name = "500"

[tier.small]
models = ["smollm2"]
tasks = ["chat"]

[tier.medium]
models = ["broken", "smollm2"]

[tier.large]
models = ["big", "smollm2"]
tasks = ["code", "maths"]
"""
    + PROBE
    + EMBED
)

upstream, gateway, key = served(CONFIG, GOOD | CLAUDES)


@pytest.fixture(scope="session")
def client(gateway: Gateway, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0) as official:
        yield official
