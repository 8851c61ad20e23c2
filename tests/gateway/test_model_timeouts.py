"""How long a model is waited for: as long as it says, else as long as its provider does."""

import pytest

from gateway.config import parse
from gateway.config_check import ConfigError
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate, chat

pytestmark = pytest.mark.anyio

MODELS = """
[[model]]
name = "thinker"
provider = "hasty"
upstream_name = "thinking"
first_token_timeout_s = 20.0
total_timeout_s = 20.0
[[model]]
name = "quick"
provider = "upstream"
upstream_name = "silence"
first_token_timeout_s = 0.3
[[model]]
name = "steady"
idle_timeout_s = 0.3
deployments = [{ provider = "upstream", upstream_name = "stall" }]
[[model]]
name = "short"
provider = "upstream"
upstream_name = "silence"
total_timeout_s = 0.3
[[model]]
name = "as-ever"
provider = "hasty"
upstream_name = "thinking"
"""


@pytest.fixture
async def gate(gate_with: OpenGate) -> Gate:
    return await gate_with(CONFIG + MODELS)


async def test_a_model_may_take_longer_than_its_providers_others(gate: Gate) -> None:
    assert (await gate.ask(chat("thinker", stream=True))).status == 200
    assert (await gate.ask(chat("as-ever", stream=True))).status == 504


@pytest.mark.parametrize(
    ("model", "stream", "code"),
    [("quick", True, "timeout_first_token"), ("steady", True, "timeout"), ("short", False, "timeout_total")],
)
async def test_or_less(gate: Gate, model: str, stream: bool, code: str) -> None:
    await gate.ask(chat(model, stream=stream))
    (attempt,) = gate.record.attempts
    assert attempt.status == "error"
    assert attempt.error_code == code


async def test_what_it_does_not_say_is_its_providers(gate: Gate) -> None:
    (thinker,) = gate.house.snapshot.catalog.fleet("thinker").deployments
    assert thinker.timeouts is not None
    assert (thinker.timeouts.first_token_s, thinker.timeouts.idle_s, thinker.timeouts.total_s) == (20.0, 0.3, 20.0)


async def test_an_edit_of_the_config_counts_at_once(gate: Gate) -> None:
    await gate.reconfigure(("first_token_timeout_s = 20.0", "first_token_timeout_s = 0.2"))
    assert (await gate.ask(chat("thinker", stream=True))).status == 504


def test_an_engine_is_not_waited_for_so() -> None:
    text = "[[engine]]\nname = 'e'\nmodel = 'm'\n[[model]]\nname = 'a'\nengine = 'e'\nidle_timeout_s = 3\n"
    with pytest.raises(ConfigError) as refused:
        parse(text.encode())
    (fault,) = refused.value.faults
    assert fault.startswith("model[0] (a).idle_timeout_s: ")
    with pytest.raises(ConfigError, match="total_timeout_s"):
        parse(text.replace("idle_timeout_s = 3", "total_timeout_s = 0").encode())
