"""A gateway that only passes on, with a misbehaving upstream behind it."""

from tests.faults.misbehaviours import SCRIPTS
from tests.support.probes import EMBED, PROBE
from tests.support.served import served

PASSING_ON = """
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
"""
CONFIG = PASSING_ON + PROBE + EMBED

upstream, gateway, key = served(CONFIG, SCRIPTS)
