"""What Tollhouse's proxy path costs, beside the least that the same framework and server can do, and beside peers.

    python -m benchmarks.gateway                 # direct, nginx where it is installed, the floor, Tollhouse
    python -m benchmarks.gateway --litellm VENV --portkey FOLDER
    python -m benchmarks.gateway --only floor-aiohttp --only floor-transport --only floor-httpx
    python -m benchmarks.gateway --only tollhouse --memory 200000

Builds a mock upstream and a load generator in C, starts everything on loopback, the gateways on core 0 and the load on
core 1, and measures all contestants in turn, several rounds over. A figure from a busy machine is worth little; the
ratio of two contestants of the same round is worth more.
"""

import argparse
import contextlib
import tempfile
from pathlib import Path

from benchmarks.gateway.contestants import LOAD_CORE, STARTS, Stage, here, start_mock
from benchmarks.gateway.measure import run_rounds, table
from benchmarks.gateway.memory import growth
from benchmarks.gateway.processes import build


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="tollhouse-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        build(folder)
        stage = Stage(stack, folder, start_mock(stack, folder), options.litellm, options.portkey)
        names = options.only or here(options.litellm, options.portkey)
        contestants = [STARTS[name](stage, name) for name in names]
        if options.memory:
            print(growth(contestants, folder / "loadgen", options.memory, LOAD_CORE))
            return
        results = run_rounds(
            contestants,
            folder / "loadgen",
            rounds=options.rounds,
            seconds=options.seconds,
            warmup=options.warmup,
            core=LOAD_CORE,
        )
    print(table(results, options.base))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(STARTS), help="may be repeated; default: all there are")
    parser.add_argument("--litellm", type=Path, metavar="VENV", help="a venv with litellm[proxy]")
    parser.add_argument("--portkey", type=Path, metavar="FOLDER", help="where npm installed peers/package.json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--base", default="floor-aiohttp", choices=list(STARTS), help="what the ratios are taken to")
    parser.add_argument("--memory", type=int, metavar="N", help="only send N requests to each, and watch its memory")
    return parser.parse_args()


if __name__ == "__main__":
    main()
