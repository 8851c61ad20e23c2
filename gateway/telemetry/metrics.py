"""Prometheus metrics of finished requests and of the gateway's parts. `observe` runs on the hot path."""

from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from gateway.ledger.records import RequestRecord
from gateway.money import NANO
from gateway.telemetry.series import LATENCY_BUCKETS, TTFT_BUCKETS, AttemptSeries, Histogram, RequestSeries, merged

MAX_MODELS = 50  # a name that matched a glob is the client's choice: beyond so many, it counts as "other"
OTHER = "other"

Combination = tuple[str, int, str, str | None, str | None]  # the same as in a record
RequestKey = tuple[str, str, str, str, str]  # endpoint, status, cache, tier, model
AttemptKey = tuple[str, str, str]  # model, provider, status


class Collects(Protocol):
    def __call__(self) -> Iterator[Metric]: ...


class Metrics:
    """Counts what it is shown; parts that keep their own counts are asked when somebody looks (`watch`)."""

    def __init__(self) -> None:
        self._requests: dict[RequestKey, RequestSeries] = {}
        self._attempts: dict[AttemptKey, AttemptSeries] = {}
        self._met: dict[Combination, RequestSeries] = {}
        self._called: dict[AttemptKey, AttemptSeries] = {}
        self._models: set[str] = set()
        self._refusals: dict[tuple[int, str], int] = {}
        self._sources: list[Callable[[], Iterator[Metric]]] = []
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def observe(self, record: RequestRecord) -> None:
        """Called once for each request, on the event loop."""
        key = (record.endpoint, record.http_status, record.cache, record.tier, record.model)
        series = self._met.get(key) or self._meet(key)
        series.num_requests += 1
        series.latency.observe(record.latency_ms / 1000)
        if record.ttft_ms is not None and record.attempts:
            series.ttft.observe(record.ttft_ms / 1000)
        series.cost_nanousd += record.cost_nanousd
        series.saved_by_cache_nanousd += record.saved_by_cache_nanousd
        series.saved_by_routing_nanousd += record.saved_by_routing_nanousd
        for attempt in record.attempts:
            called = (attempt.model, attempt.provider, attempt.status)
            (self._called.get(called) or self._call(called)).add(attempt.usage, attempt.cost_nanousd)

    def refuse(self, status: int, code: str) -> None:
        """A request that was turned away before it was anybody's: bad key, bad request, over a limit."""
        key = (status, code)
        self._refusals[key] = self._refusals.get(key, 0) + 1

    def watch(self, source: Callable[[], Iterator[Metric]]) -> None:
        """`source` is asked for its metrics at every scrape; see `gateway.telemetry.parts`."""
        self._sources.append(source)

    def exposition(self) -> bytes:
        """Prometheus' text format, version 0.0.4."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        yield self._grouped("tollhouse_requests", "Requests answered.", _REQUEST_LABELS, lambda s: s.num_requests)
        yield self._histogram(
            "tollhouse_request_duration_seconds",
            "From the request's last byte to the answer's.",
            ("endpoint", "cache", "model"),
            lambda series: series.latency,
            LATENCY_BUCKETS,
        )
        yield self._histogram(
            "llm_ttft_seconds",
            "From the request's last byte to the model's first token; answers from the cache are left out.",
            ("endpoint", "model"),
            lambda series: series.ttft,
            TTFT_BUCKETS,
        )
        yield self._grouped(
            "tollhouse_cost_usd", "Spent on answers, failed attempts included.", ("tier", "model"),
            lambda series: series.cost_nanousd / NANO,
        )  # fmt: skip
        yield self._saved()
        refusals = CounterMetricFamily("tollhouse_refusals", "Requests turned away.", labels=("status", "code"))
        for (status, code), number in self._refusals.items():
            refusals.add_metric((str(status), code), number)
        yield refusals
        yield from self._attempt_families()
        for source in self._sources:
            yield from source()

    def describe(self) -> list[Metric]:
        return []  # so that registering does not collect from parts that are not there yet

    def _meet(self, key: Combination) -> RequestSeries:
        """The series of such requests; it is remembered, but for names without end."""
        endpoint, http_status, cache, tier, name = key
        model = self._model(name)
        series = self._requests.setdefault((endpoint, str(http_status), cache, tier or "", model), RequestSeries())
        if model != OTHER:
            self._met[key] = series
        return series

    def _call(self, key: AttemptKey) -> AttemptSeries:
        """The same for such calls."""
        name, provider, status = key
        model = self._model(name)
        series = self._attempts.setdefault((model, provider, status), AttemptSeries())
        if model != OTHER:
            self._called[key] = series
        return series

    def _model(self, name: str | None) -> str:
        if name is None:
            return ""
        if name in self._models:
            return name
        if len(self._models) >= MAX_MODELS:
            return OTHER
        self._models.add(name)
        return name

    def _group(self, labels: tuple[str, ...]) -> dict[tuple[str, ...], list[RequestSeries]]:
        positions = [_REQUEST_LABELS.index(label) for label in labels]
        groups: dict[tuple[str, ...], list[RequestSeries]] = {}
        for key, series in self._requests.items():
            groups.setdefault(tuple(key[position] for position in positions), []).append(series)
        return groups

    def _grouped(
        self, name: str, text: str, labels: tuple[str, ...], value: Callable[[RequestSeries], float]
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=labels)
        for values, members in self._group(labels).items():
            family.add_metric(values, sum(value(series) for series in members))
        return family

    def _histogram(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        histogram: Callable[[RequestSeries], Histogram],
        bounds: tuple[float, ...],
    ) -> HistogramMetricFamily:
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, members in self._group(labels).items():
            whole = merged((histogram(series) for series in members), bounds)
            if any(whole.counts):
                family.add_metric(values, whole.cumulative(), whole.sum)
        return family

    def _saved(self) -> GaugeMetricFamily:
        """A gauge: an answer that is dearer than the baseline lowers it."""
        family = GaugeMetricFamily("tollhouse_saved_usd", "Saved since the start, by cause.", labels=("cause", "tier"))
        for (tier,), members in self._group(("tier",)).items():
            family.add_metric(("cache", tier), sum(series.saved_by_cache_nanousd for series in members) / NANO)
            family.add_metric(("routing", tier), sum(series.saved_by_routing_nanousd for series in members) / NANO)
        return family

    def _attempt_families(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily("tollhouse_attempts", "Calls of a backend.", labels=_ATTEMPT_LABELS)
        tokens = CounterMetricFamily(
            "tollhouse_tokens", "Tokens that backends worked on.", labels=("model", "provider", "kind")
        )
        sums: dict[tuple[str, str, str], int] = {}
        for key, series in self._attempts.items():
            attempts.add_metric(key, series.num_attempts)
            for kind in ("prompt", "cached", "completion"):
                labels = (key[0], key[1], kind)
                sums[labels] = sums.get(labels, 0) + getattr(series, f"{kind}_tokens")
        for labels, total in sums.items():
            tokens.add_metric(labels, total)
        yield attempts
        yield tokens


_REQUEST_LABELS = ("endpoint", "status", "cache", "tier", "model")
_ATTEMPT_LABELS = ("model", "provider", "status")
