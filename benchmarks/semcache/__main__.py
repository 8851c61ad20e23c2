"""What policies serve, and how much of it is wrong: `python -m benchmarks.semcache`.

Streams of banking77 and of CLINC150, shuffled by seed, where questions of one intent have one answer. The mean over the
seeds, and for the bounds the share of runs that kept them. The policies were tuned on the design half of the intents
alone; the held-out half is what counts, and all intents together are for comparison with figures elsewhere.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cache import find_model
from benchmarks.semcache import corpus, stream
from benchmarks.semcache.neighbours import Neighbours
from benchmarks.semcache.policies import Bound, Cosine, Pairs
from benchmarks.semcache.vcache import VCache

CACHE = Path(".tollhouse/benchmarks")
COSINES = (0.6, 0.85, 0.95)  # 0.6 is what GPTCache's similarity_threshold of 0.8 means
VCACHE_DELTAS = (0.01, 0.02, 0.05)
BOUNDS = (0.005, 0.01, 0.02, 0.05)

Make = Callable[[int], stream.Policy]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="sentence-transformers folder; default: what `make serve` pulled")
    parser.add_argument("--data", nargs="+", choices=["banking77", "clinc150"], default=["banking77", "clinc150"])
    parser.add_argument("--part", choices=["design", "held-out", "all"], default="held-out")
    parser.add_argument("--requests", type=int, default=8000, help="of one stream; fewer if there are no more")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--only", default="", help="the policies whose names contain this")
    parser.add_argument("--bounds", type=float, nargs="+", default=BOUNDS, help="values of max_error_rate")
    parser.add_argument("--gptcache", type=Path, help="python of an environment with gptcache, sqlalchemy, faiss-cpu")
    arguments = parser.parse_args()
    for name in arguments.data:
        questions = corpus.load(name, arguments.part, arguments.model or find_model(), CACHE)
        num_requests = min(arguments.requests, len(questions.texts))
        table = Table(title=f"{name}, {arguments.part}: {num_requests:,} requests, {arguments.seeds} seeds")
        for column in ("policy", "hits %", "wrong of all %", "of served %", "worst run", "bound kept"):
            table.add_column(column, justify="left" if column == "policy" else "right")
        for policy, bound, make in policies(questions, arguments.bounds):
            if arguments.only in policy:
                scores = np.array(
                    [stream.run(questions, make(seed), seed, num_requests) for seed in range(arguments.seeds)]
                )
                table.add_row(policy, *cells(scores, bound))
        if arguments.gptcache is not None:
            one = stream.run_gptcache(arguments.gptcache, questions, 0, num_requests)
            table.add_row("GPTCache (one seed)", *cells(np.array([one]), None))
        Console(width=120).print(table)


def policies(questions: corpus.Corpus, bounds: list[float]) -> list[tuple[str, float | None, Make]]:
    """Name, bound on the wrong among the served ones, and how to make one for a seed."""
    near, pairs = Neighbours(questions.vectors), Pairs(questions)
    return [
        *((f"cosine {value}", None, lambda _, value=value: Cosine(near, value)) for value in COSINES),
        *(
            (f"vCache {value:.1%}", None, lambda seed, value=value: VCache(questions, near, value, seed))
            for value in VCACHE_DELTAS
        ),
        *(
            (f"bound {value:.1%}", value, lambda seed, value=value: Bound.at(questions, near, pairs, value, seed))
            for value in bounds
        ),
    ]


def cells(scores: np.ndarray, bound: float | None) -> list[str]:
    """(seeds, 3) percentages as the table shows them."""
    hits, of_all, of_served = scores.mean(axis=0)
    kept = "" if bound is None else f"{np.mean(scores[:, 2] <= 100 * bound):.0%}"
    return [f"{hits:.1f}", f"{of_all:.2f}", f"{of_served:.2f}", f"{scores[:, 2].max():.2f}", kept]


if __name__ == "__main__":
    main()
