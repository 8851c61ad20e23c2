"""Metrics of parts that keep their own counts: cache, engines, books. Each is a source for `Metrics.watch`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from engine.types import EngineStats
from gateway.ledger.ledger import LedgerStats
from gateway.upstream.deployment import Deployment
from semcache.types import CacheStats


class HasEngineStats(Protocol):
    def stats(self) -> EngineStats: ...


_ENGINE_GAUGES = {
    "num_running": ("tollhouse_engine_running", "Sequences in the running batch."),
    "num_waiting": ("tollhouse_engine_waiting", "Sequences in the queue."),
    "num_blocks": ("tollhouse_engine_blocks", "Blocks of the key-value cache."),
    "num_free_blocks": ("tollhouse_engine_free_blocks", "Blocks that no sequence holds."),
    "num_cached_blocks": ("tollhouse_engine_cached_blocks", "Blocks that a later prompt may reuse."),
}
_ENGINE_COUNTERS = {
    "prompt_tokens_total": ("tollhouse_engine_prompt_tokens", "Prompt tokens, computed or reused."),
    "cached_prompt_tokens_total": ("tollhouse_engine_cached_prompt_tokens", "Prompt tokens found in the prefix cache."),
    "generated_tokens_total": ("tollhouse_engine_generated_tokens", "Tokens generated."),
    "preemptions_total": ("tollhouse_engine_preemptions", "Sequences put back for want of blocks."),
    "swapped_blocks_total": ("tollhouse_engine_swapped_blocks", "Blocks copied out to host memory."),
    "steps_total": ("tollhouse_engine_steps", "Runs of the model."),
}
_CACHE_GAUGES = {
    "entries": ("tollhouse_cache_entries", "Stored answers."),
    "vectors": ("tollhouse_cache_vectors", "Questions in the vector index."),
    "partitions": ("tollhouse_cache_partitions", "Partitions that hold at least one answer."),
    "bytes": ("tollhouse_cache_bytes", "Memory that answers and vectors take."),
}


def engine_metrics(engines: Callable[[], Mapping[str, HasEngineStats]]) -> Callable[[], Iterator[Metric]]:
    """`engines` gives the running engines by name, at every scrape anew."""

    def collect() -> Iterator[Metric]:
        stats = {name: engine.stats() for name, engine in engines().items()}
        for field, (metric, text) in _ENGINE_GAUGES.items():
            gauge = GaugeMetricFamily(metric, text, labels=("engine",))
            for name, each in stats.items():
                gauge.add_metric((name,), getattr(each, field))
            yield gauge
        for field, (metric, text) in _ENGINE_COUNTERS.items():
            counter = CounterMetricFamily(metric, text, labels=("engine",))
            for name, each in stats.items():
                counter.add_metric((name,), getattr(each, field))
            yield counter

    return collect


def deployment_metrics(deployments: Callable[[], Iterable[Deployment]]) -> Callable[[], Iterator[Metric]]:
    """How each model's places stand, as this gateway's own traffic found them; nothing is sent to find out."""
    labels = ("model", "provider", "upstream_model")

    def collect() -> Iterator[Metric]:
        left_alone = GaugeMetricFamily(
            "tollhouse_deployment_left_alone", "1 while no request is sent there.", labels=labels
        )
        running = GaugeMetricFamily("tollhouse_deployment_running", "Calls under way.", labels=labels)
        for each in deployments():
            named = (each.model, each.backend.name, each.upstream_model)
            left_alone.add_metric(named, each.breaker.state != "closed")
            running.add_metric(named, each.load.outstanding)
        yield left_alone
        yield running

    return collect


def cache_metrics(stats: Callable[[], CacheStats]) -> Callable[[], Iterator[Metric]]:
    def collect() -> Iterator[Metric]:
        now = stats()
        for field, (metric, text) in _CACHE_GAUGES.items():
            yield GaugeMetricFamily(metric, text, value=getattr(now, field))
        lookups = CounterMetricFamily("tollhouse_cache_lookups", "Lookups, by outcome.", labels=("outcome",))
        lookups.add_metric(("hit-exact",), now.hits_exact)
        lookups.add_metric(("hit-semantic",), now.hits_semantic)
        lookups.add_metric(("miss",), now.misses)
        lookups.add_metric(("bypass",), now.bypasses)
        yield lookups
        yield CounterMetricFamily("tollhouse_cache_admissions", "Answers taken in.", value=now.admissions)

    return collect


def ledger_metrics(stats: Callable[[], LedgerStats]) -> Callable[[], Iterator[Metric]]:
    def collect() -> Iterator[Metric]:
        now = stats()
        yield GaugeMetricFamily("tollhouse_ledger_queued", "Records settled and not in SQL yet.", value=now.num_queued)
        yield CounterMetricFamily("tollhouse_ledger_written", "Records written to SQL.", value=now.num_written)
        yield CounterMetricFamily("tollhouse_ledger_refused", "Records that SQL refused.", value=now.num_refused)
        yield GaugeMetricFamily("tollhouse_journal_segments", "Files of the journal.", value=now.num_segments)
        faults = GaugeMetricFamily("tollhouse_ledger_fault", "1 while the part is failing.", labels=("part",))
        faults.add_metric(("journal",), now.journal_error is not None)
        faults.add_metric(("database",), now.database_error is not None)
        yield faults

    return collect
