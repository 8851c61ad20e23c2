"""What Tollhouse's proxy path costs, beside the least that the same framework and server can do.

    python -m benchmarks.gateway                 # direct, the floor, Tollhouse
    python -m benchmarks.gateway --only floor-aiohttp --only floor-transport --only floor-httpx

Builds a mock upstream and a load generator in C, starts everything on loopback, the gateways on core 0 and the load on
core 1, and measures all contestants in turn, several rounds over. A figure from a busy machine is worth little; the
ratio of two contestants of the same round is worth more.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.gateway.measure import HIT, Contestant, run_rounds, table
from benchmarks.gateway.processes import HERE, ROOT, build, free_port, running

CONFIG_PORT = 9900  # what tollhouse.toml says; replaced by the mock's real one
GATEWAY_CORE, LOAD_CORE = 0, 1
CLIENTS = ("aiohttp", "transport", "httpx")
NAMES = ("direct", *(f"floor-{client}" for client in CLIENTS), "tollhouse")
DEFAULT = ("direct", "floor-aiohttp", "tollhouse")
COMPLETIONS = "/chat/completions"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", choices=NAMES, help=f"may be repeated; default: {', '.join(DEFAULT)}"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--base", default="floor-aiohttp", choices=NAMES, help="what the ratios are taken to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tollhouse-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        build(folder)
        upstream = f"http://127.0.0.1:{start_mock(stack, folder)}/v1"
        contestants = [start(stack, folder, name, upstream) for name in options.only or DEFAULT]
        results = run_rounds(
            contestants,
            folder / "loadgen",
            rounds=options.rounds,
            seconds=options.seconds,
            warmup=options.warmup,
            core=LOAD_CORE,
        )
    print(table(results, options.base))


def start_mock(stack: contextlib.ExitStack, folder: Path) -> int:
    port = free_port()
    command = [str(folder / "mock_upstream"), "--port", str(port)]
    ready = f"http://127.0.0.1:{port}/v1/models"
    stack.enter_context(running(command, core=LOAD_CORE, ready_url=ready, log=folder / "mock.log"))
    return port


def start(stack: contextlib.ExitStack, folder: Path, name: str, upstream: str) -> Contestant:
    if name == "direct":
        return Contestant(name, f"{upstream}{COMPLETIONS}")
    port = free_port()
    gateway = f"http://127.0.0.1:{port}"

    def serve(command: list[str], env: dict[str, str]) -> int:
        log, ready = folder / f"{name}.log", f"{gateway}/health/ready"
        return stack.enter_context(running(command, core=GATEWAY_CORE, ready_url=ready, log=log, env=env))

    if name == "tollhouse":
        config = folder / "tollhouse.toml"
        text = (HERE / "tollhouse.toml").read_text()
        config.write_text(text.replace(f"http://127.0.0.1:{CONFIG_PORT}/v1", upstream))
        env = {"TOLLHOUSE_HOME": str(folder / "state"), "TOLLHOUSE_CONFIG": str(config)}
        command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config), "--port", str(port)]
        pid = serve(command, env)
        headers = (f"Authorization: Bearer {new_key(env)}",)
        return Contestant(name, f"{gateway}/v1{COMPLETIONS}", pid, headers, (HIT,))
    env = {"UPSTREAM_CLIENT": name.removeprefix("floor-"), "UPSTREAM": upstream, "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable, "-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", str(port),
        "--loop", "uvloop", "--workers", "1", "--no-access-log", "--log-level", "warning",
        "benchmarks.gateway.floor:app",
    ]  # fmt: skip
    return Contestant(name, f"{gateway}/v1{COMPLETIONS}", serve(command, env))


def new_key(env: dict[str, str]) -> str:
    """A tenant and a key, as a user would make them."""
    tollhouse(env, "tenants", "add", "bench")
    key = re.search(r"sk-th-[\w-]+", tollhouse(env, "keys", "create", "--tenant", "bench"))
    if key is None:
        raise SystemExit("`tollhouse keys create` printed no key")
    return key.group()


def tollhouse(env: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "gateway.cli", *arguments]
    done = subprocess.run(command, env=os.environ | env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
