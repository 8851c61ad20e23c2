"""How each server is started, and how it is asked. Peers take part where they are installed.

Each has all cores that the measurement is given, 32 streams' worth of cache, and its best settings for this model.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.engine.load import Target
from benchmarks.gateway.processes import ROOT, free_port

MAX_STREAMS = 32
CONTEXT = 8192
SLOT = 640


@dataclass(slots=True, frozen=True)
class Contestant:
    name: str
    command: list[str]
    ready_url: str
    target: Target
    env: dict[str, str] = field(default_factory=dict)
    context: int = CONTEXT  # the longest sequence that it is set up for


def tollhouse(model: Path, folder: Path, threads: int, engine_settings: str = "") -> Contestant:
    """The whole gateway: key, limits and ledger on; `no-store`, so that no answer comes from its cache."""
    port = free_port()
    config = folder / "tollhouse.toml"
    config.write_text(
        f'[server]\nport = {port}\n[cache]\nenabled = false\n[[engine]]\nname = "local"\nmodel = "{model}"\n'
        f"num_threads = {threads}\n{engine_settings}\n"
        '[[model]]\nname = "bench"\nengine = "local"\ninput_usd_per_mtok = 0.01\noutput_usd_per_mtok = 0.02\n'
    )
    env = {"TOLLHOUSE_HOME": str(folder / "home")}
    program = [sys.executable, "-m", "gateway.cli"]
    _run([*program, "init", "--config", str(config)], env)
    made = _run([*program, "keys", "create", "--tenant", "demo", "--config", str(config)], env)
    key = next(word for word in made.split() if word.startswith("sk-th-"))
    url = f"http://127.0.0.1:{port}"
    target = Target(url, "bench", {"authorization": f"Bearer {key}", "cache-control": "no-store"})
    return Contestant("Tollhouse", [*program, "serve", "--config", str(config)], f"{url}/health/ready", target, env)


def llama_cpp(server: str, model: Path, threads: int) -> Contestant:
    """Flash attention off is its fastest setting for this model on a CPU."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    # A slot of its own for each stream, as short as will do: one shared cache, or slots of 8k, make it half as fast.
    context = MAX_STREAMS * SLOT
    command = [
        *(server, "-m", str(model), "--port", str(port), "-t", str(threads), "-tb", str(threads), "-c", str(context)),
        *("-np", str(MAX_STREAMS), "-fa", "off", "--no-webui", "-no-kvu", "--cache-ram", "0"),
    ]
    target = Target(url, "bench", extra={"cache_prompt": False})
    return Contestant("llama.cpp", command, f"{url}/health", target, context=SLOT)


def vllm_cpu(python: str, model: Path, threads: int) -> Contestant:
    """Its own Python, since it brings another torch; `model`: a folder with safetensors in bfloat16."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "bench"),
        *("--port", str(port), "--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--max-num-seqs", "64"),
        "--no-enable-prefix-caching",
    ]
    cores = ",".join(map(str, range(threads)))
    env = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_NO_USAGE_STATS": "1"}
    return Contestant("vllm-cpu", command, f"{url}/health", Target(url, "bench"), env)


def installed_llama_cpp() -> str | None:
    return shutil.which("llama-server")


def _run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=os.environ | env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
