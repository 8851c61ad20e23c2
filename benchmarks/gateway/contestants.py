"""Who is measured, and how each is started: the gateways on a core of their own, all in front of one mock upstream."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway.measure import HIT, Contestant
from benchmarks.gateway.processes import HERE, ROOT, free_port, running

CONFIG_PORT = 9900  # what tollhouse.toml says; replaced by the mock's real one
GATEWAY_CORE, LOAD_CORE = 0, 1
COMPLETIONS = "/chat/completions"
CLIENTS = ("aiohttp", "transport", "httpx")


@dataclass(frozen=True)
class Stage:
    """What every contestant needs to be started."""

    stack: contextlib.ExitStack
    folder: Path
    upstream: str  # the mock's base URL
    litellm: Path | None = None  # its venv
    portkey: Path | None = None  # where npm installed peers/package.json

    def serve(
        self, name: str, command: list[str], port: int, env: dict[str, str] | None = None, ready: str = "/health/ready"
    ) -> int:
        url, log = f"http://127.0.0.1:{port}{ready}", self.folder / f"{name}.log"
        return self.stack.enter_context(running(command, core=GATEWAY_CORE, ready_url=url, log=log, env=env))

    def written(self, source: Path, **replaced: str) -> str:
        """The path of a copy of a configuration with its capital words filled in."""
        text = source.read_text()
        for word, value in replaced.items():
            text = text.replace(word, value)
        target = self.folder / source.name
        target.write_text(text)
        return str(target)


def start_mock(stack: contextlib.ExitStack, folder: Path) -> str:
    port = free_port()
    command = [str(folder / "mock_upstream"), "--port", str(port)]
    ready = f"http://127.0.0.1:{port}/v1/models"
    stack.enter_context(running(command, core=LOAD_CORE, ready_url=ready, log=folder / "mock.log"))
    return f"http://127.0.0.1:{port}/v1"


def direct(stage: Stage, name: str) -> Contestant:
    return Contestant(name, f"{stage.upstream}{COMPLETIONS}")


def floor(stage: Stage, name: str) -> Contestant:
    port = free_port()
    env = {"UPSTREAM_CLIENT": name.removeprefix("floor-"), "UPSTREAM": stage.upstream, "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable, "-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", str(port),
        "--loop", "uvloop", "--workers", "1", "--no-access-log", "--log-level", "warning",
        "benchmarks.gateway.floor:app",
    ]  # fmt: skip
    return Contestant(name, _completions(port), stage.serve(name, command, port, env))


def tollhouse(stage: Stage, name: str) -> Contestant:
    port = free_port()
    config = stage.written(HERE / "tollhouse.toml", **{f"http://127.0.0.1:{CONFIG_PORT}/v1": stage.upstream})
    env = {"TOLLHOUSE_HOME": str(stage.folder / "state"), "TOLLHOUSE_CONFIG": config}
    command = [sys.executable, "-m", "gateway.cli", "serve", "--config", config, "--port", str(port)]
    pid = stage.serve(name, command, port, env)
    return Contestant(name, _completions(port), pid, (f"Authorization: Bearer {new_key(env)}",), (HIT,))


def nginx(stage: Stage, name: str) -> Contestant:
    port = free_port()
    address = stage.upstream.removeprefix("http://").removesuffix("/v1")
    config = stage.written(HERE / "peers/nginx.conf", PORT=str(port), UPSTREAM=address, FOLDER=str(stage.folder))
    return Contestant(name, _completions(port), stage.serve(name, ["nginx", "-c", config], port))


def litellm(stage: Stage, name: str) -> Contestant:
    if stage.litellm is None:
        raise SystemExit("--litellm: the venv that has litellm[proxy] is needed")
    port = free_port()
    config = stage.written(HERE / "peers/litellm.yaml", UPSTREAM=stage.upstream)
    command = [
        str(stage.litellm / "bin/litellm"), "--config", config, "--host", "127.0.0.1", "--port", str(port),
        "--num_workers", "1",
    ]  # fmt: skip
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR"}
    pid = stage.serve(name, command, port, env, "/health/liveliness")
    return Contestant(name, _completions(port), pid, ("Authorization: Bearer sk-bench",))


def portkey(stage: Stage, name: str) -> Contestant:
    if stage.portkey is None:
        raise SystemExit("--portkey: the folder where npm installed benchmarks/gateway/peers/package.json is needed")
    port = free_port()
    script = stage.portkey / "node_modules/@portkey-ai/gateway/build/start-server.js"
    pid = stage.serve(
        name, ["node", str(script), "--headless", f"--port={port}"], port, {"NODE_ENV": "production"}, "/"
    )
    headers = (
        "x-portkey-provider: openai", f"x-portkey-custom-host: {stage.upstream}", "Authorization: Bearer sk-mock"
    )  # fmt: skip
    return Contestant(name, _completions(port), pid, headers)


STARTS: dict[str, Callable[[Stage, str], Contestant]] = {
    "direct": direct,
    "nginx": nginx,
    **{f"floor-{client}": floor for client in CLIENTS},
    "tollhouse": tollhouse,
    "litellm": litellm,
    "portkey": portkey,
}


def here(litellm: Path | None, portkey: Path | None) -> list[str]:
    """Those that can be measured on this machine; of the floors the one that ratios are taken to."""
    peers = {"nginx": shutil.which("nginx"), "litellm": litellm, "portkey": portkey}
    floors = {f"floor-{client}": client == "aiohttp" for client in CLIENTS}
    return [name for name in STARTS if (peers | floors).get(name, True)]


def new_key(env: dict[str, str]) -> str:
    """A tenant and a key, as a user would make them."""
    command_line(env, "tenants", "add", "bench")
    key = re.search(r"sk-th-[\w-]+", command_line(env, "keys", "create", "--tenant", "bench"))
    if key is None:
        raise SystemExit("`tollhouse keys create` printed no key")
    return key.group()


def command_line(env: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "gateway.cli", *arguments]
    done = subprocess.run(command, env=os.environ | env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def _completions(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1{COMPLETIONS}"
