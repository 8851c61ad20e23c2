"""Starts, pins, watches and ends the processes of a measurement. Knows no figures."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
START_S = 120.0
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def build(folder: Path) -> None:
    """Compiles mock upstream and load generator into `folder`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("a C compiler is needed (cc or gcc)")
    for name in ("mock_upstream", "loadgen"):
        source, target = HERE / f"{name}.c", folder / name
        subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", str(target), str(source)], check=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def pinned(core: int | None, command: Sequence[str]) -> list[str]:
    """The command on one core, where the system has `taskset` and that many cores; None: on all of them."""
    if core is not None and shutil.which("taskset") and (os.cpu_count() or 1) > core:
        return ["taskset", "-c", str(core), *command]
    return list(command)


@contextlib.contextmanager
def running(
    command: Sequence[str], *, core: int | None, ready_url: str, log: Path, env: dict[str, str] | None = None
) -> Iterator[int]:
    """The process id, once `ready_url` answers; ended with the block, its children too."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            pinned(core, command),
            env=os.environ | (env or {}),
            cwd=ROOT,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait(process, ready_url, log)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], ready_url: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while not _answers(ready_url):
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"{process.args!r} does not answer:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except (OSError, http.client.HTTPException):
        return False


def memory_mib(pid: int) -> float:
    """Resident memory of a process and its descendants (shared pages counted in each)."""
    pages = 0
    for member in _family(pid):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{member}/statm").read_text().split()[1])
    return pages * PAGE / 2**20


def cpu_seconds(pid: int) -> float:
    """User and system time that a process and its descendants have used so far."""
    ticks = 0
    for member in _family(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def _family(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found
