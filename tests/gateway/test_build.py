"""What a config builds, and what an edit of it changes in a running gateway: all of it or nothing."""

import asyncio
import logging
from typing import Any

import pytest

from gateway.config_check import ConfigError
from gateway.house import House
from gateway.store.errors import StoreUnavailable
from tests.gateway.conftest import TIERS, OpenGate
from tests.gateway.test_catalog import only
from tests.support.in_process import CONFIG, Gate, chat

pytestmark = pytest.mark.anyio


@pytest.fixture
def gate(fresh_gate: Gate) -> Gate:
    return fresh_gate


async def test_a_gateway_that_only_forwards_loads_no_model(gate: Gate) -> None:
    assert gate.house.backends.embedder is None
    assert gate.house.backends.local == {}
    assert gate.house.snapshot.router is None


async def test_tiers_and_a_semantic_cache_bring_the_embedder(learned: Gate) -> None:
    assert learned.house.backends.embedder is not None
    assert learned.house.snapshot.router is not None


async def test_a_provider_without_its_key_is_named_with_its_variable(
    gate_with: OpenGate, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tollhouse.build"):
        await gate_with(CONFIG)
    (said,) = [record.getMessage() for record in caplog.records if "A_KEY_THAT_NOBODY_SETS" in record.getMessage()]
    assert "locked/*" in said
    assert "'keyless'" in said


async def test_a_fault_in_the_config_leaves_nothing_open(gate_with: OpenGate) -> None:
    with pytest.raises(ConfigError, match="provider: "):
        await gate_with(CONFIG.replace('name = "hasty"', 'name = "hasty"\nheaders = { "x-y" = "a\\nb" }'))
    gate = await gate_with(CONFIG)  # over the same state folder
    assert (await gate.ask(chat())).status == 200


async def test_a_model_at_several_providers_is_booked_where_it_was_served(gate_with: OpenGate) -> None:
    places = """[
      { provider = "nowhere", weight = 1e9 },
      { provider = "upstream", upstream_name = "ok", output_usd_per_mtok = 9 },
    ]"""
    gate = await gate_with(f'{CONFIG}[[model]]\nname = "spread"\ninput_usd_per_mtok = 1\ndeployments = {places}\n')
    line = await gate.ask(chat("spread"))
    assert (line.status, line["x-tollhouse-model"], line["x-tollhouse-attempts"]) == (200, "spread", "2")
    record = gate.record
    assert [(each.provider, each.error_code) for each in record.attempts] == [
        ("nowhere", "connect_error"),
        ("upstream", None),
    ]
    assert (record.model, record.provider, record.cost_nanousd) == ("spread", "upstream", 11 * 1_000 + 7 * 9_000)


async def test_a_deployment_that_is_left_alone_is_said_and_does_not_make_it_unready(fresh_gate: Gate) -> None:
    gate = fresh_gate
    for _ in range(3):
        assert (await gate.ask(chat("nowhere"))).status == 502
    assert gate.house.condition()["deployments"] == "1 of 1 left alone"
    assert (await gate.ask(chat("dear"))).status == 200
    assert gate.house.condition()["deployments"] == "1 of 2 left alone"
    exposed = gate.house.metrics.exposition().decode()
    labels = 'model="nowhere",provider="nowhere",upstream_model="nowhere"'
    assert f"tollhouse_deployment_left_alone{{{labels}}} 1.0" in exposed
    assert f"tollhouse_deployment_running{{{labels}}} 0.0" in exposed
    received = len(gate.upstream.received)
    await asyncio.sleep(0.3)
    assert len(gate.upstream.received) == received  # and nobody is asked how they are


# An edit.


async def test_an_edit_is_taken_over_by_every_part(gate: Gate) -> None:
    assert (await gate.ask(chat("fresh"))).status == 404
    await gate.reconfigure(
        ('baseline_model = "dear"', 'baseline_model = "nowhere"'),
        ("semantic = false", "semantic = false\nenabled = false\n[limits]\nrequests_per_minute = 2"),
        ('name = "dead"', 'name = "fresh"'),
        ("input_usd_per_mtok = 10.0", "input_usd_per_mtok = 11.0"),
    )
    line = await gate.ask(chat("dear"))
    assert (line.status, line["x-tollhouse-cache-reason"]) == (200, "disabled")
    record = gate.records[-1]
    assert record.cost_nanousd == 11 * 11_000 + 7 * 20_000
    assert record.baseline_model == "nowhere"
    assert record.config_hash == gate.house.snapshot.config.hash != gate.records[0].config_hash
    assert (await gate.ask(chat("fresh"))).status == 502
    assert (await gate.ask(chat("dear"))).status == 429


async def test_an_edit_leaves_requests_under_way_alone(gate: Gate) -> None:
    before = gate.house.snapshot
    await gate.reconfigure(('name = "dead"', 'name = "fresh"'))
    assert gate.house.snapshot is not before
    assert before.catalog.model("dead", "chat").name == "dead"


async def test_a_provider_that_did_not_change_keeps_its_connections(gate: Gate) -> None:
    backends = {name: only(gate.house.snapshot.catalog, name).backend for name in ("dear", "hasty/x")}
    await gate.reconfigure(("total_timeout_s = 0.6", "total_timeout_s = 0.7"))
    catalog = gate.house.snapshot.catalog
    assert only(catalog, "dear").backend is backends["dear"]
    assert only(catalog, "hasty/x").backend is not backends["hasty/x"]


async def test_a_model_that_did_not_change_keeps_its_breaker(gate: Gate) -> None:
    breakers = {name: only(gate.house.snapshot.catalog, name).breaker for name in ("dear", "dead")}
    await gate.reconfigure(('upstream_name = "500"', 'upstream_name = "502"'))
    catalog = gate.house.snapshot.catalog
    assert only(catalog, "dear").breaker is breakers["dear"]
    assert only(catalog, "dead").breaker is not breakers["dead"]


async def test_a_key_that_was_set_meanwhile_counts_from_the_next_edit(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY_THAT_NOBODY_SETS", "sk-now")
    await gate.reconfigure(("total_timeout_s = 0.6", "total_timeout_s = 0.7"))
    assert (await gate.ask(chat("locked/ok"))).status == 200
    assert gate.upstream.of("ok")[0].headers["authorization"] == "Bearer sk-now"


# An edit that is refused.


ENGINE = '[[engine]]\nname = "local"\nmodel = "x.gguf"\n[[model]]\nname = "new"\nengine = "local"\n'
TIERS_ONLY = TIERS[TIERS.index("[tier.small]") : TIERS.index("[tier.large]")]
CHANGES = (
    ('baseline_model = "dear"', 'baseline_model = "nowhere"'),
    ("semantic = false", "semantic = false\nttl_s = 7\n[limits]\nrequests_per_minute = 1"),
    ('name = "upstream"\nbase_url', 'name = "upstream"\nmax_connections = 3\nbase_url'),
)


def parts(house: House) -> tuple[Any, ...]:
    return (
        house.snapshot,
        house.bookkeeper.baseline_model,
        house.limiter._defaults,
        house.cache._options,
        only(house.snapshot.catalog, "dear").backend,
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('[[model]]\nname = "dead"', f'{ENGINE}[[model]]\nname = "dead"'), "next start"),
        (('name = "hasty"', 'name = "hasty"\nheaders = { "x-y" = "a\\nb" }'), "provider: "),
    ],
)
async def test_an_edit_that_cannot_be_applied_changes_nothing(gate: Gate, change: tuple[str, str], says: str) -> None:
    before = parts(gate.house)
    with pytest.raises(ConfigError, match=says):
        await gate.reconfigure(*CHANGES, change)
    assert parts(gate.house) == before
    assert (await gate.ask(chat("dear"))).status == 200


async def test_an_edit_whose_prices_cannot_be_written_changes_nothing(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise StoreUnavailable("the database is away")

    before = parts(gate.house)
    with monkeypatch.context() as patched:
        patched.setattr(gate.house.prices, "seed", away)
        with pytest.raises(StoreUnavailable):
            await gate.reconfigure(*CHANGES)
    assert parts(gate.house) == before
    assert (await gate.ask(chat("dear"))).status == 200


async def test_a_router_that_cannot_be_built_is_a_fault_of_the_config(gate: Gate) -> None:
    before = parts(gate.house)
    rule = '[[router.rules]]\nname = "r"\ntier = "small"\ntask = "no such task"\n'
    with pytest.raises(ConfigError, match="router: "):
        await gate.reconfigure(('[[model]]\nname = "nowhere"', f'{rule}{TIERS_ONLY}[[model]]\nname = "nowhere"'))
    assert parts(gate.house) == before
