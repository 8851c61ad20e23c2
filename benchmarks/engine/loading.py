"""How long a model takes to load, beside reading its file: in turn, in one process.

    python -m benchmarks.engine.loading --model SmolLM2-135M-Instruct.Q4_1.gguf

Reading is the cached file into new memory, by one thread. Before each, as much memory as both need is used and given
back: in a virtual machine the host takes many times as long to find some that the guest never had.
"""

import argparse
import mmap
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from engine.engine import Engine
from engine.types import EngineOptions, GenerationRequest, SamplingParams

_PAGE = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="a .gguf file")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    kinds: dict[str, Callable[[], object]] = {
        "reading": options.model.read_bytes,
        "loading": lambda: _load(options.model, options.threads, bf16_copy=True),
        "loading, no bfloat16 copy": lambda: _load(options.model, options.threads, bf16_copy=False),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, function in kinds.items():
            _use_memory(8 * options.model.stat().st_size)
            start = time.perf_counter()
            kept = function()
            seconds[name].append(time.perf_counter() - start)
            if isinstance(kept, Engine):
                _prompt(kept)  # waits for what is made after the load, so that it is in nobody's way
            del kept
    Console().print(_table(seconds))


def _table(seconds: dict[str, list[float]]) -> Table:
    table = Table("", "least, ms", "median, ms", "of reading: least", "of reading: median")
    reading = seconds["reading"]
    for name, found in seconds.items():
        least, median = min(found), statistics.median(found)
        ratios = least / min(reading), median / statistics.median(reading)
        table.add_row(name, *(f"{1000 * each:.0f}" for each in (least, median)), *(f"{each:.2f}x" for each in ratios))
    return table


def _load(model: Path, threads: int | None, *, bf16_copy: bool) -> Engine:
    return Engine(EngineOptions(model=str(model), num_threads=threads, kv_cache_mb=256, bf16_copy=bf16_copy))


def _prompt(engine: Engine) -> None:
    sampling = SamplingParams(max_tokens=1)
    engine.add_request(GenerationRequest(request_id="1", prompt_token_ids=[1, 2, 3], sampling=sampling))
    while engine.has_work:
        engine.step()


def _use_memory(size: int) -> None:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(memory, np.uint8)[::_PAGE] = 1


if __name__ == "__main__":
    main()
