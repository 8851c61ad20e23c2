"""Lines come in few writes, in their order, and none is lost where the process ends in an orderly way."""

import asyncio
import signal
import subprocess
import sys

import pytest

from gateway.telemetry.lines import Lines


class Written:
    """A stdout that notes each write."""

    def __init__(self) -> None:
        self.buffer = self
        self.writes: list[bytes] = []
        self.came = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.came.set()

    def flush(self) -> None:
        pass


@pytest.mark.anyio
async def test_lines_of_a_moment_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, stdout = Lines(), Written()
    monkeypatch.setattr(sys, "stdout", stdout)
    for burst in (b"123", b"45"):
        for digit in burst:
            lines.put(b"%c\n" % digit)
        await asyncio.wait_for(stdout.came.wait(), 10)
        stdout.came.clear()
    assert stdout.writes == [b"1\n2\n3\n", b"4\n5\n"]


def test_a_loop_that_ended_takes_no_line_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines()

    async def put(line: bytes, *, wait: bool) -> None:
        stdout = Written()
        monkeypatch.setattr(sys, "stdout", stdout)
        lines.put(line)
        if wait:
            await asyncio.wait_for(stdout.came.wait(), 10)
            assert stdout.writes == [b"1\n2\n"]

    asyncio.run(put(b"1\n", wait=False))
    asyncio.run(put(b"2\n", wait=True))


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(3)", "raise ValueError('a bug')"])
def test_a_process_writes_them_before_it_ends(ending: str) -> None:
    code = f"""
import asyncio
from gateway.telemetry.lines import Lines
async def main():
    Lines().put(b"the last\\n")
    {ending}
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stdout == b"the last\n"


def test_a_second_signal_takes_no_line_with_it() -> None:
    code = """
import asyncio, os, signal
from gateway.cli.server import _on_signals
from gateway.telemetry.log import lines
async def main():
    _on_signals()
    lines.put(b"the last\\n")
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, b"the last\n")
