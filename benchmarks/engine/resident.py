"""How much memory a process has that runs the engine and nothing else: `python -m benchmarks.engine.resident MODEL`."""

import subprocess
import sys
from pathlib import Path

from benchmarks.engine.load import random_prompt
from benchmarks.gateway.processes import ROOT
from engine.engine import Engine
from engine.types import EngineOptions, GenerationRequest, SamplingParams

KV_CACHE_MB = 32


def resident_mib(model: Path) -> float:
    """Of a new process that has answered once, the KV cache of KV_CACHE_MB taken off."""
    command = [sys.executable, "-m", "benchmarks.engine.resident", str(model.resolve())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout) - KV_CACHE_MB


def main() -> None:
    engine = Engine(EngineOptions(model=sys.argv[1], kv_cache_mb=KV_CACHE_MB))
    sampling = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    engine.add_request(GenerationRequest(request_id="1", prompt_token_ids=random_prompt(512, 1), sampling=sampling))
    while engine.has_work:
        engine.step()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    print(int(line.split()[1]) / 1024)


if __name__ == "__main__":
    main()
