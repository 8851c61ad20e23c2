"""Whether a gateway's memory stays where it is: resident size against requests answered, and the line through it."""

import statistics
from pathlib import Path

from benchmarks.gateway.measure import CASES, Contestant, Runs
from benchmarks.gateway.processes import memory_mib

CASE = next(case for case in CASES if case.label == "chat c=32")
PIECE_S = 5.0
LEFT_OUT = 0.25  # of the requests, at the beginning: pools and caches fill


def growth(contestants: list[Contestant], loadgen: Path, num_requests: int, core: int) -> str:
    """Markdown. Prompts repeat never, so that the cache's own growth up to its bound (`max_mb`) is in the figures."""
    runs = Runs(loadgen, core)
    lines = ["| | requests | RSS MiB before | after | MiB per 10,000 |", "|---|--:|--:|--:|--:|"]
    for contestant in (each for each in contestants if each.pid is not None):
        assert contestant.pid is not None
        seen: list[tuple[float, float]] = [(0.0, memory_mib(contestant.pid))]
        while seen[-1][0] < num_requests:
            result = runs.load(contestant, CASE, PIECE_S, 0.0)
            seen.append((seen[-1][0] + result["rps"] * PIECE_S, memory_mib(contestant.pid)))
        late = [point for point in seen if point[0] >= LEFT_OUT * num_requests]
        slope = statistics.linear_regression([x for x, _ in late], [y for _, y in late]).slope
        lines.append(
            f"| {contestant.name} | {seen[-1][0]:,.0f} | {seen[0][1]:.0f} | {seen[-1][1]:.0f} | {1e4 * slope:.2f} |"
        )
    return "\n".join(lines)
