"""How much Python a request is: the bytecodes that the gateway's event loop runs for one, by file or by function.

    python -m benchmarks.gateway.bytecodes                  # a chat that the cache does not know
    python -m benchmarks.gateway.bytecodes --kind stream --by function
    python -m benchmarks.gateway.bytecodes --kind hit

A count knows no noise: it is the same on a busy machine and on an idle one. One is worth 25 to 30 ns with all that
hangs on it. The rows' way into SQL is told apart: it comes in smaller batches than under load. Needs a C compiler.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from benchmarks.gateway.contestants import new_key, start_mock
from benchmarks.gateway.processes import HERE, ROOT, build, free_port

BODIES = {"chat": "chat.json", "hit": "chat.json", "stream": "chat_stream.json"}
NUM_WARM = 50
SQL = ("gateway/store/", "aiosqlite/", "sqlalchemy/")


class Counting:
    """Counts every bytecode of every Python frame that begins or resumes in the thread which starts it."""

    def __init__(self) -> None:
        self.bytecodes: Counter[tuple[str, str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        sys.settrace(self._enter)

    @staticmethod
    def stop() -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.calls[_place(frame)] += 1
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            self.bytecodes[_place(frame)] += 1
        return self._step


def _place(frame: FrameType) -> tuple[str, str]:
    return frame.f_code.co_filename, frame.f_code.co_qualname


class Client:
    """Plain requests over one connection."""

    def __init__(self, port: int, key: str, body: dict[str, Any]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._lines = self._socket.makefile("rb")
        self._head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        )
        self._body = body

    def ask(self, text: str) -> None:
        messages = [*self._body["messages"][:-1], self._body["messages"][-1] | {"content": text}]
        raw = json.dumps(self._body | {"messages": messages}, separators=(",", ":")).encode()
        self._socket.sendall(f"{self._head}{len(raw)}\r\n\r\n".encode() + raw)
        status, length = self._lines.readline(), -1
        while (line := self._lines.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if b" 200 " not in status:
            raise SystemExit(f"the gateway answered {status.decode().strip()}")
        self._lines.read(length) if length >= 0 else self._read_chunks()

    def _read_chunks(self) -> None:
        while size := int(self._lines.readline(), 16):
            self._lines.read(size + 2)
        self._lines.read(2)


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="tollhouse-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        build(folder)
        upstream = start_mock(stack, folder)
        config = folder / "tollhouse.toml"
        config.write_text((HERE / "tollhouse.toml").read_text().replace("http://127.0.0.1:9900/v1", upstream))
        env = {"TOLLHOUSE_HOME": str(folder), "TOLLHOUSE_CONFIG": str(config)}
        os.environ.update(env)
        counting = serve_and_count(config, new_key(env), options.kind, options.number)
    print(report(counting, options.number, options.by, options.rows))


def serve_and_count(config: Path, key: str, kind: str, number: int) -> Counting:
    """Runs a gateway in this process, asks it from a thread, and counts what its event loop does meanwhile."""
    from gateway.app import create_app
    from gateway.cli.server import serve

    counting, port = Counting(), free_port()
    body = json.loads((HERE / "bodies" / BODIES[kind]).read_text())

    async def run() -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        server = asyncio.create_task(serve(create_app(config), "127.0.0.1", port, 1.0, ready.set))
        await ready.wait()
        client = await asyncio.to_thread(Client, port, key, body)

        def ask(first: int, last: int) -> None:
            for index in range(first, last):
                client.ask("always the same" if kind == "hit" else f"question {index}")

        await asyncio.to_thread(ask, 0, NUM_WARM)
        counting.start()
        await loop.run_in_executor(None, ask, NUM_WARM, NUM_WARM + number)
        counting.stop()
        server.cancel()
        await asyncio.wait({server})

    uvloop.run(run())
    return counting


def report(counting: Counting, number: int, by: str, num_rows: int) -> str:
    bytecodes: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for place, count in counting.bytecodes.items():
        file, function = _short(place[0]), place[1]
        row = file if by == "file" else f"{file}: {function}"
        bytecodes[row] += count
        calls[row] += counting.calls[place]
    rows = [
        f"{count / number:9.0f} {calls[row] / number:7.1f}  {row}" for row, count in bytecodes.most_common(num_rows)
    ]
    in_sql = sum(count for (path, _), count in counting.bytecodes.items() if _short(path).startswith(SQL))
    totals = [(bytecodes.total() - in_sql, "all but rows on their way into SQL"), (in_sql, "those")]
    ends = [f"{count / number:9.0f} {'':7}  {what}" for count, what in totals]
    return "\n".join([f"{'bytecodes':>9} {'calls':>7}  a request", *rows, *ends])


def _short(path: str) -> str:
    for folder in (sysconfig.get_path("purelib"), str(ROOT), sysconfig.get_path("stdlib")):
        path = path.removeprefix(f"{folder}/")
    return path


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=list(BODIES), default="chat")
    parser.add_argument("--number", type=int, default=100, help="of requests")
    parser.add_argument("--by", choices=["file", "function"], default="file")
    parser.add_argument("--rows", type=int, default=80)
    return parser.parse_args()


if __name__ == "__main__":
    main()
