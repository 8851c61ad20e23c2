"""A gateway with a bundled engine and a good provider, and clients that each run in an environment of their own."""

from tests.faults.good_behaviour import GOOD
from tests.support.probes import EMBED, PROBE
from tests.support.served import served

ENGINE_AND_PROVIDER = """
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
"""

upstream, gateway, key = served(ENGINE_AND_PROVIDER + PROBE + EMBED, GOOD)
