"""Takes a client on a journey: a script in the client's own language and environment, told where to go, which prints
what it got. A script knows how its client is called and nothing of us; all that is judged is judged in the tests.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PYTHON = FOLDER / "python" / ".venv" / "bin" / "python"
NODE_MODULES = FOLDER / "node" / "node_modules"
HOW = "run `make test-system`, which installs the clients"
TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Backend:
    """What answers behind the gateway, by the names that a client gives."""

    model: str
    embedding_model: str
    faulty_model: str  # whose answer is an error
    parallel: bool = True  # it may be asked for several calls at once


ENGINE = Backend(model="smollm2", embedding_model="minilm", faulty_model="no-such-model", parallel=False)
PROVIDER = Backend(model="probe/good", embedding_model="embed/good", faulty_model="probe/400")


def take(script: str, base_url: str, key: str, backend: Backend, home: Path) -> dict[str, Any]:
    """What each step of the script gave. `home`: a folder for whatever the client wants to keep."""
    told = {
        "base_url": base_url,
        "key": key,
        "model": backend.model,
        "embedding_model": backend.embedding_model,
        "faulty_model": backend.faulty_model,
        "parallel": backend.parallel,
        "home": str(home),
    }
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [*_command(script), json.dumps(told)],
        env=environment | {"HOME": str(home), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, f"{script} failed:\n{done.stderr[-4000:]}"
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def _command(script: str) -> list[str]:
    path = FOLDER / script
    if path.suffix == ".py":
        assert PYTHON.exists(), HOW
        return [str(PYTHON), str(path)]
    assert NODE_MODULES.exists(), HOW
    return ["node", str(path)]
