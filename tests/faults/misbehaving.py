"""An upstream that misbehaves on command: raw sockets in a thread, so that bytes and their timing are as written.

The model's name (what follows its last "/") picks the behaviour, see misbehaviours.py. It counts connections and
requests, keeps what it was sent, and notes when a client hung up.
"""

import asyncio
import contextlib
import json
import re
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

Script = Callable[["Wire"], Awaitable[None]]
HEAD_LIMIT = 2**25


@dataclass
class Received:
    """A request as it reached us."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    arrived: float = field(default_factory=time.monotonic)
    hung_up_after_s: float | None = None  # the client left before the script was through

    @property
    def json(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.raw)
        return body

    @property
    def behaviour(self) -> str:
        if self.headers.get("content-type", "").startswith("multipart/"):
            named = re.search(rb'name="model"\r\n\r\n([^\r]*)', self.raw)
            return named[1].decode() if named is not None else ""
        return str(self.json.get("model", "")).rpartition("/")[2] if self.raw else ""


class Wire:
    """What a script answers with."""

    def __init__(self, request: Received, index: int, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.index = index  # how many requests for this behaviour came before
        self.writer = writer

    async def raw(self, data: bytes, pause: float = 0.0) -> None:
        self.writer.write(data)
        await self.writer.drain()
        if pause:
            await asyncio.sleep(pause)

    async def json(
        self,
        body: Any,
        status: str = "200 OK",
        headers: dict[str, str] | None = None,
        encode: Callable[[bytes], bytes] = bytes,
    ) -> None:
        payload = encode(body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode())
        fields = {"Content-Type": "application/json", "Content-Length": str(len(payload))} | (headers or {})
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items() if value)]
        await self.raw("\r\n".join([*lines, "", ""]).encode() + payload)

    async def start_events(self, extra: str = "") -> None:
        await self.raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
            b"Transfer-Encoding: chunked\r\n" + extra.encode() + b"\r\n"
        )

    async def piece(self, data: bytes, pause: float = 0.0) -> None:
        """One HTTP chunk."""
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data), pause)

    async def event(self, body: Any, pause: float = 0.0) -> None:
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        await self.piece(f"data: {text}\n\n".encode(), pause)

    async def end(self, done: bool = True) -> None:
        if done:
            await self.event("[DONE]")
        await self.raw(b"0\r\n\r\n")

    def reset(self) -> None:
        self.writer.transport.abort()

    def half_close(self) -> None:
        """No more from us; the client may still write."""
        self.writer.close()


class MisbehavingUpstream:
    """`with MisbehavingUpstream(scripts) as upstream:` answers until the block ends."""

    def __init__(self, scripts: dict[str, Script], ssl_context: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.num_connections = 0  # ever accepted
        self.num_open = 0
        self.port = 0
        self._scripts = dict(scripts)
        self._built_in = frozenset(scripts)
        self._ssl_context = ssl_context
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="misbehaving-upstream", daemon=True)
        self._started = threading.Event()

    @property
    def base_url(self) -> str:
        return f"{'https' if self._ssl_context else 'http'}://localhost:{self.port}/v1"

    def of(self, behaviour: str) -> list[Received]:
        return [request for request in self.received if request.behaviour == behaviour]

    def on(self, behaviour: str, script: Script) -> None:
        """Teaches it one more, for as long as it lives: what other tests rely on is not replaced."""
        assert behaviour not in self._built_in, f"{behaviour} has its script; take another name"
        self._scripts[behaviour] = script

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(10), "the upstream does not start"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def drop_connections(self) -> None:
        """Closes all connections, as a restart would."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._tasks])

    def wait_until(self, condition: Callable[[], bool], seconds: float = 5.0) -> bool:
        """For what another thread does; blocks, so a coroutine calls it through asyncio.to_thread."""
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=HEAD_LIMIT, ssl=self._ssl_context)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self._loop)  # handshakes that never ended among them
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_connections += 1
        self.num_open += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # the client left, or we are stopped
        finally:
            self.num_open -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; False when the connection is used up."""
        request = await _read_request(reader)
        index = len(self.of(request.behaviour))
        self.received.append(request)
        script = self._scripts.get(request.behaviour, self._scripts["ok"])
        answering = asyncio.ensure_future(script(Wire(request, index, writer)))
        watching = asyncio.ensure_future(reader.read(1))
        try:
            done, _ = await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if answering in done and not isinstance(answering.exception(), OSError):
                await answering
                return not writer.is_closing()
            request.hung_up_after_s = time.monotonic() - request.arrived  # one of the two noticed first
            return False
        finally:
            for future in (answering, watching):
                future.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await future


async def _read_request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    method, path, _ = first.split(" ")
    return Received(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
