"""What the shipped router is worth: its tasks on unseen prompts, its tiers, its prior, and the time of a decision.

    python benchmarks/router.py [--config config.toml] [--rows 600]

The prompts are held-out rows of the training data, and hand-written ones that never were in it: routing_probes.csv with
their task, and routing_tiers.csv with the tiers that would do. Of the latter, the set "seen" was read before the cues
were last widened, the set "unseen" written after.
"""

import argparse
import csv
import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from gateway.config import Config, home, load
from gateway.models.sources import resolve
from routing.cues import guess
from routing.dataset import SHIPPED, read_difficulty, read_tasks
from routing.heads import Heads, load_shipped
from routing.metrics import Bools, Floats, Labels, apgr, estimate, macro_f1
from routing.router import Router
from routing.signals import extract
from routing.types import Candidate, Policy, Prompt, Rule, Tier
from semcache.sentence_model import SentenceModel

HERE = Path(__file__).parent
CONSTANT_SHARE = 0.97
Row = TypeVar("Row")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=HERE.parent / "config.toml")
    parser.add_argument("--rows", type=int, default=600, help="held-out prompts to embed, of tasks and of exams each")
    arguments = parser.parse_args()
    config = load(arguments.config)
    model = SentenceModel(resolve(config.embedding.model, home() / "models"))
    heads = load_shipped(model.id)
    router = Router(policy_of(config), heads)

    tasks = _spread([row for row in read_tasks(SHIPPED) if row.held_out], arguments.rows)
    exams = _spread([row for row in read_difficulty(SHIPPED) if row.held_out], arguments.rows)
    probes = list(csv.reader((HERE / "routing_probes.csv").open()))[1:]
    sets = {
        "held-out tasks": ([row.text for row in tasks], [row.task for row in tasks]),
        "hand-written probes": ([text for text, _ in probes], [task for _, task in probes]),
        "exam questions": ([row.text for row in exams], None),
    }
    prompts = {name: embed(model, texts) for name, (texts, _) in sets.items()}

    print("\n| tasks, macro-F1 | prompts | with embedding | without | cue words alone |\n|---|--:|--:|--:|--:|")
    for name, (_, labels) in sets.items():
        if labels is not None:
            print(f"| {name} | {len(labels)} | {' | '.join(macro_f1_of(heads, prompts[name], labels))} |")
    print_prior(heads, prompts["exam questions"], [(row.weak_right, row.strong_right) for row in exams])
    print_tiers(router, model)
    print_shares(router, prompts)
    print_times(router, [prompt for of_set in prompts.values() for prompt in of_set])


def policy_of(config: Config) -> Policy:
    """The config's tiers as they are, every model taken for usable."""
    contexts = {model.name: model for model in config.model}
    default = config.router.default_tier or next(iter(config.tier))
    return Policy(
        tiers=tuple(Tier(name=n, models=t.models, tasks=t.tasks) for n, t in config.tier.items()),
        candidates={
            name: Candidate(model=name, context_tokens=contexts[name].context_tokens)
            for tier in config.tier.values()
            for name in tier.models
        },
        default_tier=default,
        fallback_tier=config.router.fallback_tier or default,
        quality=config.router.quality,
        min_confidence=config.router.min_confidence,
        rules=tuple(
            Rule(
                tier=rule.tier,
                name=rule.name,
                task=rule.task,
                contains=rule.contains,
                min_prompt_tokens=rule.min_prompt_tokens,
                max_prompt_tokens=rule.max_prompt_tokens,
            )
            for rule in config.router.rules
        ),
    )


def embed(model: SentenceModel, texts: Sequence[str]) -> list[Prompt]:
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    prompts: dict[int, Prompt] = {}
    for at in range(0, len(order), 16):
        batch = order[at : at + 16]
        for index, vector in zip(batch, model.encode([texts[index] for index in batch]), strict=True):
            prompts[index] = Prompt(text=texts[index], embedding=vector, num_tokens=len(texts[index]) // 4)
    return [prompts[index] for index in range(len(texts))]


def macro_f1_of(heads: Heads, prompts: Sequence[Prompt], labels: Sequence[str]) -> list[str]:
    index = {task: number for number, task in enumerate(heads.tasks)}
    truth = np.array([index[label] for label in labels])
    cells = []
    judges: tuple[Callable[[Prompt], str | None], ...] = (
        lambda prompt: heads.judge(extract(prompt.text), prompt.embedding).task,
        lambda prompt: heads.judge(extract(prompt.text), None).task,
        lambda prompt: guess(prompt.text),
    )
    for judge in judges:
        guessed = np.array([index.get(judge(prompt) or "", -1) for prompt in prompts])
        cells.append(_interval(partial(_f1, truth, guessed, len(index)), len(truth)))
    return cells


def print_prior(heads: Heads, prompts: Sequence[Prompt], grades: Sequence[tuple[bool, bool]]) -> None:
    weak, strong = np.array(grades).T
    hardness = np.array([1 - heads.judge(extract(p.text), p.embedding).weak_right for p in prompts])
    lengths = np.array([float(len(prompt.text)) for prompt in prompts])
    print("\n| difficulty prior | APGR on exam questions (chance: 0.5) |\n|---|--:|")
    for name, order in (("trained", hardness), ("length alone", lengths)):
        print(f"| {name} | {_interval(partial(_apgr, order, weak, strong), len(weak))} |")


def print_tiers(router: Router, model: SentenceModel) -> None:
    rows = list(csv.reader((HERE / "routing_tiers.csv").open()))[1:]
    decisions = [router.choose(prompt) for prompt in embed(model, [text for text, _, _ in rows])]
    dearest = router.policy.tiers[-1].name
    print(
        f"\n| hand-written prompts by tier | fit | hard ones sent to {dearest} | others sent there |\n|---|--:|--:|--:|"
    )
    for name in dict.fromkeys(of_set for _, _, of_set in rows):
        judged = [(d.tier, fit.split()) for d, (_, fit, of_set) in zip(decisions, rows, strict=True) if of_set == name]
        hard = [tier for tier, fit in judged if fit == [dearest]]
        easy = [tier for tier, fit in judged if dearest not in fit]
        cells = [
            f"{sum(tier in fit for tier, fit in judged)} of {len(judged)}",
            f"{hard.count(dearest)} of {len(hard)}",
            f"{easy.count(dearest)} of {len(easy)}",
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def print_shares(router: Router, prompts: dict[str, list[Prompt]]) -> None:
    names = [tier.name for tier in router.policy.tiers]
    print(f"\n| share per tier | {' | '.join(names)} | low confidence |\n|---|{'--:|' * (len(names) + 1)}")
    total: Counter[str] = Counter()
    for title, of_set in prompts.items():
        decisions = [router.choose(prompt) for prompt in of_set]
        counts = Counter(decision.tier for decision in decisions)
        unsure = sum("low_confidence" in decision.reason for decision in decisions)
        total += counts
        cells = [f"{counts[name] / len(of_set):.0%}" for name in names] + [f"{unsure / len(of_set):.0%}"]
        print(f"| {title} | {' | '.join(cells)} |")
    name, count = total.most_common(1)[0]
    if count > CONSTANT_SHARE * total.total():
        print(f"\nCONSTANT ROUTER: {count / total.total():.1%} of all prompts go to {name!r}")


def print_times(router: Router, prompts: Sequence[Prompt], rounds: int = 5) -> None:
    for prompt in prompts:
        router.choose(prompt)
    gc.disable()
    times_us = []
    for prompt in [prompt for _ in range(rounds) for prompt in prompts]:
        start = time.perf_counter_ns()
        router.choose(prompt)
        times_us.append((time.perf_counter_ns() - start) / 1000)
    gc.enable()
    cuts = statistics.quantiles(times_us, n=100)
    print("\n| a decision, given the embedding | µs |\n|---|--:|")
    for name, value in (("p50", cuts[49]), ("p95", cuts[94]), ("p99", cuts[98])):
        print(f"| {name} | {value:.0f} |")


def _f1(truth: Labels, guessed: Labels, num_classes: int, rows: Labels) -> float:
    return macro_f1(truth[rows], guessed[rows], num_classes)


def _apgr(hardness: Floats, weak: Bools, strong: Bools, rows: Labels) -> float:
    return apgr(hardness[rows], weak[rows], strong[rows])


def _interval(measure: Callable[[Labels], float], num_rows: int) -> str:
    value, low, high = estimate(measure, num_rows, seed=0)
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _spread(rows: list[Row], count: int) -> list[Row]:
    return [rows[index] for index in np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]


if __name__ == "__main__":
    main()
