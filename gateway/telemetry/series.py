"""Sums of one combination of labels, kept as plain numbers. Knows nothing of Prometheus.

The event loop alone adds to them and reads them, so no lock is taken and one request costs a few additions.
"""

from bisect import bisect_left
from collections.abc import Iterable

from gateway.wire.usage import Usage

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TTFT_BUCKETS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


class Histogram:
    """Counts per bucket (not cumulative; the last is +Inf) and the sum of what was observed, in seconds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def add(self, other: "Histogram") -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' buckets: pairs of upper bound and count of everything below it."""
        pairs: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            pairs.append((bound, total))
        return pairs


def merged(histograms: Iterable[Histogram], bounds: tuple[float, ...]) -> Histogram:
    whole = Histogram(bounds)
    for histogram in histograms:
        whole.add(histogram)
    return whole


class RequestSeries:
    """All requests that agree in endpoint, HTTP status, cache outcome, tier and model."""

    __slots__ = (
        "cost_nanousd",
        "latency",
        "num_requests",
        "saved_by_cache_nanousd",
        "saved_by_routing_nanousd",
        "ttft",
    )

    def __init__(self) -> None:
        self.num_requests = 0
        self.latency = Histogram(LATENCY_BUCKETS)
        self.ttft = Histogram(TTFT_BUCKETS)
        self.cost_nanousd = 0
        self.saved_by_cache_nanousd = 0
        self.saved_by_routing_nanousd = 0


class AttemptSeries:
    """All calls of one model at one provider that ended alike."""

    __slots__ = ("cached_tokens", "completion_tokens", "cost_nanousd", "num_attempts", "prompt_tokens")

    def __init__(self) -> None:
        self.num_attempts = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.cost_nanousd = 0

    def add(self, usage: Usage, cost_nanousd: int) -> None:
        self.num_attempts += 1
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.completion_tokens += usage.completion_tokens
        self.cost_nanousd += cost_nanousd
