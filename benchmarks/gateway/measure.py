"""The cases, the runs and what becomes of their figures: medians over rounds, and ratios within each round."""

import json
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gateway.processes import HERE, cpu_seconds, memory_mib, pinned


@dataclass(frozen=True)
class Case:
    """A closed loop, by default: each of `concurrency` connections sends its next request when the last answer is
    complete."""

    label: str
    body: str
    concurrency: int
    distinct: int = 0  # prompts before they repeat; 0: never, in no run of all, 1: always the same
    rate: float = 0.0  # an open loop instead: so many requests a second


CASES = (
    Case("chat c=1", "chat.json", 1),
    Case("chat c=32", "chat.json", 32),
    Case("stream c=1", "chat_stream.json", 1),
    Case("stream c=32", "chat_stream.json", 32),
    Case("chat 200/s", "chat.json", 32, rate=200.0),
)
HIT = Case("exact hit c=1", "chat.json", 1, distinct=1)


@dataclass(frozen=True)
class Contestant:
    name: str
    url: str
    pid: int | None = None
    headers: tuple[str, ...] = ()
    extra: tuple[Case, ...] = ()


@dataclass
class Series:
    """One contestant in one case, a figure for each round."""

    rps: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)  # of the gateway, for one request
    num_errors: int = 0
    rss_mib: float = 0.0


Results = dict[tuple[str, str], Series]  # by contestant and case
PROMPTS_A_RUN = 10_000_000


class Runs:
    """The load generator, again and again. No run repeats another's prompts: a gateway's cache would answer those."""

    def __init__(self, loadgen: Path, core: int) -> None:
        self._loadgen = loadgen
        self._core = core
        self._num_runs = 0

    def load(self, contestant: Contestant, case: Case, seconds: float, warmup: float) -> dict[str, Any]:
        self._num_runs += 1
        first = 0 if case.distinct else self._num_runs * PROMPTS_A_RUN
        command = [
            str(self._loadgen), "--url", contestant.url, "--body", str(HERE / "bodies" / case.body),
            "--concurrency", str(case.concurrency), "--distinct", str(case.distinct), "--from", str(first),
            "--seconds", str(seconds), "--warmup", str(warmup), "--rate", str(case.rate),
        ]  # fmt: skip
        for header in contestant.headers:
            command += ["--header", header]
        done = subprocess.run(pinned(self._core, command), capture_output=True, text=True, check=True)
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def run_rounds(
    contestants: list[Contestant], loadgen: Path, *, rounds: int, seconds: float, warmup: float, core: int
) -> Results:
    """All contestants in turn within each round, so that whatever else the machine does meets them all alike."""
    results: Results = {}
    runs = Runs(loadgen, core)
    for number in range(rounds):
        order = contestants if number % 2 == 0 else contestants[::-1]
        for case in (*CASES, HIT):
            for contestant in order:
                if case not in (*CASES, *contestant.extra):
                    continue
                series = results.setdefault((contestant.name, case.label), Series())
                before = cpu_seconds(contestant.pid) if contestant.pid else 0.0
                _record(series, runs.load(contestant, case, seconds, warmup))
                if contestant.pid:
                    used = cpu_seconds(contestant.pid) - before
                    series.cpu_us.append(1e6 * used / max(1.0, series.rps[-1] * (seconds + warmup)))
                    series.rss_mib = memory_mib(contestant.pid)
                print(f"round {number + 1}  {case.label:14} {contestant.name:20} {series.rps[-1]:9.0f}/s", flush=True)
    return results


def _record(series: Series, result: dict[str, Any]) -> None:
    series.rps.append(result["rps"])
    series.p50_ms.append(result["lat_ms"]["p50"])
    series.p99_ms.append(result["lat_ms"]["p99"])
    series.num_errors += result["bad_status"] + result["truncated"] + result["net_errors"]


def table(results: Results, base: str) -> str:
    """Markdown: medians over the rounds; the ratio is the median of each round's own ratio to `base`."""
    lines: list[str] = []
    for case in (*CASES, HIT):
        names = [name for name, label in results if label == case.label]
        if not names:
            continue
        lines += [
            f"\n### {case.label}\n",
            f"| | requests/s | of {base} | CPU us/request | p50 ms | added p50 ms | p99 ms | RSS MiB | errors |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for name in names:
            series = results[name, case.label]
            floor, direct = results.get((base, case.label)), results.get(("direct", case.label))
            cpu = f"{statistics.median(series.cpu_us):.0f}" if series.cpu_us else "-"
            lines.append(
                f"| {name} | {statistics.median(series.rps):,.0f} | {_ratio(series, floor)} | {cpu} "
                f"| {statistics.median(series.p50_ms):.3f} | {_added(series, direct)} "
                f"| {statistics.median(series.p99_ms):.2f} | {series.rss_mib:.0f} | {series.num_errors} |"
            )
    return "\n".join(lines)


def _ratio(series: Series, base: Series | None) -> str:
    if base is None:
        return "-"
    return f"{statistics.median(mine / theirs for mine, theirs in zip(series.rps, base.rps, strict=True)):.2f}x"


def _added(series: Series, direct: Series | None) -> str:
    if direct is None or direct is series:
        return "-"
    return f"{statistics.median(a - b for a, b in zip(series.p50_ms, direct.p50_ms, strict=True)):.3f}"
