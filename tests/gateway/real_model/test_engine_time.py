"""Time of the bundled engine, from its steps to the books: what took it pays for it, whole, streamed or left."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.in_process import Gate, Line, chat, open_gate

pytestmark = pytest.mark.anyio

CONFIG = """
[cache]
semantic = false
[[engine]]
name = "local"
model = "{smollm2}"
kv_cache_mb = 96
max_model_len = 1024
[[model]]
name = "hourly"
engine = "local"
usd_per_hour = 3600.0
"""  # a dollar a second: a nano-dollar is a nanosecond


@pytest.fixture
async def gate(
    anyio_backend: str,
    upstream: MisbehavingUpstream,
    smollm2_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Gate]:
    monkeypatch.setenv("TOLLHOUSE_HOME", str(tmp_path))
    async with AsyncExitStack() as stack:
        gate = await open_gate(stack, upstream, CONFIG.replace("{smollm2}", str(smollm2_path)))
        await gate.start_over()
        yield gate


async def test_what_takes_time_pays_for_it(gate: Gate) -> None:
    await gate.ask(chat("hourly", max_tokens=8, temperature=0))
    await gate.ask(chat("hourly", "And the pier?", max_tokens=8, temperature=0, stream=True))
    left = Line(leaves_after=b"data: ")
    await gate.ask(chat("hourly", "And all the others?", max_tokens=900, temperature=1.5, stream=True), line=left)
    rows = await gate.rows("SELECT * FROM requests ORDER BY started_at")
    assert [row["status"] for row in rows] == ["ok", "ok", "cancelled"]
    for row in rows:
        assert row["compute_us"] > 0
        assert row["cost_nanousd"] == row["compute_us"] * 1000
        assert row["latency_ms"] * 1000 >= row["compute_us"]
        (attempt,) = await gate.rows(f"SELECT * FROM attempts WHERE request_id = '{row['id']}'")
        assert (attempt["compute_us"], attempt["cost_nanousd"]) == (row["compute_us"], row["cost_nanousd"])


async def test_a_hit_saves_the_time_that_the_answer_took(gate: Gate) -> None:
    question = chat("hourly", "Say yes.", stop=["."], max_tokens=200, temperature=0)
    for _ in range(2):
        await gate.ask(question)
    first, second = await gate.rows("SELECT * FROM requests ORDER BY started_at")
    assert (first["cache"], second["cache"]) == ("miss", "hit-exact")
    assert (second["cost_nanousd"], second["saved_by_cache_nanousd"]) == (0, first["cost_nanousd"])
