"""Every record is counted once, under few labels, in a format that Prometheus' own parser reads."""

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.types import EngineStats
from gateway.ledger.ledger import LedgerStats
from gateway.ledger.records import AttemptRecord, RequestRecord
from gateway.telemetry.metrics import MAX_MODELS, Metrics
from gateway.telemetry.parts import cache_metrics, engine_metrics, ledger_metrics
from gateway.wire.usage import Usage
from semcache.types import CacheStats

ATTEMPT = AttemptRecord(
    id="a", request_id="r", index=0, model="m", provider="p", upstream_model="m", started_at=0.0,
    usage=Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=5), cost_nanousd=1_500,
)  # fmt: skip
RECORD = RequestRecord(
    id="r", tenant_id="t", key_id="k", endpoint="chat.completions", requested_model="auto", started_at=0.0, model="m",
    tier="small", cache="miss", cost_nanousd=1_500, saved_by_routing_nanousd=-500, ttft_ms=700.0, latency_ms=3_000.0,
    attempts=(ATTEMPT,),
)  # fmt: skip
HIT = msgspec.structs.replace(
    RECORD, cache="hit-exact", cost_nanousd=0, saved_by_cache_nanousd=1_500, ttft_ms=1.0, latency_ms=2.0, attempts=()
)


def scrape(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Samples by (name, label=value, ...)."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_requests_are_counted_by_their_outcome() -> None:
    metrics = Metrics()
    for record in (RECORD, RECORD, HIT, msgspec.structs.replace(RECORD, http_status=502, status="error")):
        metrics.observe(record)
    seen = scrape(metrics)
    labels = ("endpoint=chat.completions", "model=m")
    assert seen["tollhouse_requests_total", "cache=miss", *labels, "status=200", "tier=small"] == 2
    assert seen["tollhouse_requests_total", "cache=miss", *labels, "status=502", "tier=small"] == 1
    assert seen["tollhouse_requests_total", "cache=hit-exact", *labels, "status=200", "tier=small"] == 1


def test_money_and_tokens_add_up_and_a_hit_uses_none() -> None:
    metrics = Metrics()
    for record in (RECORD, HIT):
        metrics.observe(record)
    seen = scrape(metrics)
    assert seen["tollhouse_cost_usd_total", "model=m", "tier=small"] == pytest.approx(1.5e-6)
    assert seen["tollhouse_saved_usd", "cause=cache", "tier=small"] == pytest.approx(1.5e-6)
    assert seen["tollhouse_saved_usd", "cause=routing", "tier=small"] == pytest.approx(-1e-6)
    tokens = {
        kind: seen["tollhouse_tokens_total", f"kind={kind}", "model=m", "provider=p"] for kind in ("prompt", "cached")
    }
    assert tokens == {"prompt": 10, "cached": 4}
    assert seen["tollhouse_attempts_total", "model=m", "provider=p", "status=ok"] == 1


def test_time_to_first_token_has_the_stated_buckets_and_leaves_hits_out() -> None:
    metrics = Metrics()
    for ttft_ms in (100.0, 700.0, 20_000.0):
        metrics.observe(msgspec.structs.replace(RECORD, ttft_ms=ttft_ms))
    metrics.observe(HIT)
    seen = scrape(metrics)
    name, labels = "llm_ttft_seconds_bucket", ("endpoint=chat.completions",)
    counts = {
        le: seen[name, *labels, f"le={le}", "model=m"] for le in ("0.1", "0.5", "1.0", "2.0", "5.0", "10.0", "+Inf")
    }
    assert counts == {"0.1": 1, "0.5": 1, "1.0": 2, "2.0": 2, "5.0": 2, "10.0": 2, "+Inf": 3}
    assert seen["llm_ttft_seconds_sum", *labels, "model=m"] == pytest.approx(20.8)


def test_names_that_clients_make_up_cannot_flood_the_labels() -> None:
    metrics = Metrics()
    for number in range(MAX_MODELS + 50):
        metrics.observe(msgspec.structs.replace(RECORD, model=f"probe-{number}", attempts=()))
    models = {key[3] for key in scrape(metrics) if key[0] == "tollhouse_requests_total"}
    assert len(models) == MAX_MODELS + 1
    assert "model=other" in models


def test_a_label_with_quotes_and_newlines_survives() -> None:
    metrics = Metrics()
    metrics.observe(msgspec.structs.replace(RECORD, model='a"b\nc\\d', attempts=()))
    assert any(key[3] == 'model=a"b\nc\\d' for key in scrape(metrics) if key[0] == "tollhouse_requests_total")


def test_parts_are_asked_at_each_scrape() -> None:
    class Engine:
        running = 0

        def stats(self) -> EngineStats:
            return EngineStats(num_running=self.running, generated_tokens_total=7)

    def ledger() -> LedgerStats:
        return LedgerStats(
            num_queued=11, num_written=12, num_refused=0, num_segments=1, overflowed=False, journal_error=None,
            database_error="away",
        )  # fmt: skip

    engine = Engine()
    counts = {"entries": 3, "hits_semantic": 5}
    stats = CacheStats(**(dict.fromkeys(CacheStats.__struct_fields__, 0) | counts))
    metrics = Metrics()
    metrics.watch(engine_metrics(lambda: {"local": engine}))
    metrics.watch(cache_metrics(lambda: stats))
    metrics.watch(ledger_metrics(ledger))
    engine.running = 2
    seen = scrape(metrics)
    assert seen["tollhouse_engine_running", "engine=local"] == 2
    assert seen["tollhouse_engine_generated_tokens_total", "engine=local"] == 7
    assert seen["tollhouse_cache_entries",] == 3
    assert seen["tollhouse_cache_lookups_total", "outcome=hit-semantic"] == 5
    assert seen["tollhouse_ledger_queued",] == 11
    assert seen["tollhouse_ledger_fault", "part=database"] == 1
    assert seen["tollhouse_ledger_fault", "part=journal"] == 0


def test_an_empty_gateway_can_be_scraped() -> None:
    assert ("process_resident_memory_bytes",) in scrape(Metrics())
