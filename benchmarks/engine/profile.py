"""Where a step's time goes, kernel by kernel: decode steps of 1, 8 and 32 streams, and a prompt's first chunk."""

from pathlib import Path

from rich.table import Table

from benchmarks.engine.load import random_prompt
from engine.plan import PlannedSequence, StepPlan
from engine.request import Request
from engine.runner import Runner
from engine.types import EngineOptions, GenerationRequest

REPEAT = 15


def profile(model: Path, threads: int, streams: tuple[int, ...], context: int, num_prompt: int) -> Table:
    """Milliseconds of the fastest of some runs; logits and sampling are not in it."""
    runner = Runner(EngineOptions(model=str(model), num_threads=threads, kv_cache_mb=256))
    plans = {f"{count} streams": _decodes(count, context) for count in streams}
    plans[f"prompt of {num_prompt}"] = _prompt(num_prompt)
    found = {name: _fastest(runner, plan) for name, plan in plans.items()}
    table = Table(title=f"Where a step's time goes, ms, context {context}")
    for column in ("kernel", *plans):
        table.add_column(column, justify="right" if column != "kernel" else "left")
    kernels = sorted(found[next(iter(plans))], key=lambda kernel: -found[next(iter(plans))][kernel])
    for kernel in kernels:
        table.add_row(kernel, *(f"{found[name][kernel] * 1e3:.2f}" for name in plans))
    table.add_row("all", *(f"{sum(found[name].values()) * 1e3:.2f}" for name in plans), style="bold")
    return table


def _fastest(runner: Runner, plan: StepPlan) -> dict[str, float]:
    runs = [runner.seconds_of_kernels(plan) for _ in range(REPEAT)]
    return {kernel: min(run[kernel] for run in runs) for kernel in runs[0]}


def _decodes(count: int, context: int) -> StepPlan:
    """Each stream has `context` tokens, of which the last was generated; what lies in their blocks doesn't matter."""
    return StepPlan(
        [PlannedSequence(_request(index, context, context - 1), context - 1, 1, True) for index in range(count)]
    )


def _prompt(num_tokens: int) -> StepPlan:
    return StepPlan([PlannedSequence(_request(0, num_tokens, num_tokens), 0, num_tokens, True)])


def _request(index: int, num_tokens: int, num_prompt: int) -> Request:
    token_ids = random_prompt(num_tokens, index)
    num_blocks = -(-num_tokens // Runner.block_size)
    params = GenerationRequest(request_id=str(index), prompt_token_ids=token_ids[:num_prompt])
    blocks = list(range(index * num_blocks, (index + 1) * num_blocks))
    return Request(params, token_ids, num_prompt, block_ids=blocks)
