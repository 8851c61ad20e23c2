"""A crowd of clients in front of gateways, and an upstream that knows what it was asked for; `audit` compares."""

import asyncio
import contextlib
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.faults.misbehaving import MisbehavingUpstream, Script, Wire
from tests.faults.misbehaviours import STOP, TOKEN, chunk, completion, error
from tests.support.probes import PROBE
from tests.support.server import Gateway

CONFIG = (
    """
[cache]
enabled = false
[store]
database_url = "{database}"
[[provider]]
name = "upstream"
base_url = "{upstream}"
max_retries = 1
"""
    + PROBE
)
PIECE_S = 0.02  # between two pieces of a stream
BEHAVIOURS = ("counted", "counted", "counted", "shy", "breaks", "fails")


@dataclass
class Call:
    """One request as it reached the upstream."""

    num_pieces: int = 0  # of a stream, sent so far
    usage: tuple[int, int] | None = None  # as reported, once all is sent


@dataclass
class Seen:
    """What a client got of one answer."""

    num_pieces: int = 0
    whole: bool = False


class CountingUpstream:
    """Answers in several ways and keeps account: `calls` by the gateway's request id, in order."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self._rng = random.Random(1)
        scripts: dict[str, Script] = {
            "counted": self._counted,
            "shy": self._shy,
            "breaks": self._breaks,
            "fails": self._fails,
            "ok": self._healthy,
        }
        self.server = MisbehavingUpstream(scripts)

    def _open(self, wire: Wire) -> tuple[Call, int]:
        made = self.calls[wire.request.headers["x-request-id"]]
        made.append(Call())
        return made[-1], len(made)

    @staticmethod
    async def _healthy(wire: Wire) -> None:
        """To whoever asks how we are."""
        await wire.json({"object": "list", "data": []})

    async def _counted(self, wire: Wire) -> None:
        await self._answer(wire, self._open(wire)[0])

    async def _shy(self, wire: Wire) -> None:
        """Refuses a request the first time."""
        call, number = self._open(wire)
        if number == 1:
            await wire.json(error("busy", "overloaded"), "503 Service Unavailable", {"retry-after": "0"})
        else:
            await self._answer(wire, call)

    async def _fails(self, wire: Wire) -> None:
        self._open(wire)
        await wire.json(error("broken", "server_error"), "500 Internal Server Error")

    async def _breaks(self, wire: Wire) -> None:
        """Dies in the midst of a stream; of a whole answer, while it thinks.

        Not at once: a connection that breaks within 50 ms is one that was dead already, to our transport.
        """
        call, _ = self._open(wire)
        if wire.request.json.get("stream"):
            await wire.start_events()
            await self._pieces(wire, call, self._rng.randint(1, 6))
        else:
            await asyncio.sleep(0.1)
        wire.reset()

    async def _answer(self, wire: Wire, call: Call) -> None:
        usage = (self._rng.randint(100, 999), self._rng.randint(1, 99))
        told = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
        if not wire.request.json.get("stream"):
            await asyncio.sleep(self._rng.uniform(0, 0.1))
            call.usage = usage
            return await wire.json(completion(usage=told))
        await wire.start_events()
        await self._pieces(wire, call, self._rng.randint(1, 20))
        call.num_pieces += 1
        await wire.event(STOP)
        call.usage = usage
        await wire.event(chunk(usage=told))
        return await wire.end()

    async def _pieces(self, wire: Wire, call: Call, number: int) -> None:
        for _ in range(number):
            call.num_pieces += 1
            await wire.event(TOKEN, PIECE_S)


@dataclass
class Crowd:
    """`async with` it: clients ask these gateways at random, without a pause, until the block ends."""

    gateways: list[Gateway]
    key: str
    num_clients: int = 12
    seen: dict[str, Seen] = field(default_factory=dict)  # by request id
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def __aenter__(self) -> "Crowd":
        self._tasks = [asyncio.create_task(self._client(random.Random(seed))) for seed in range(self.num_clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                raise AssertionError(f"a client broke down: {ended!r}")

    async def _client(self, rng: random.Random) -> None:
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {self.key}"}) as session:
            while True:
                patience_s = rng.uniform(0.05, 0.3) if rng.random() < 0.1 else 30.0
                try:
                    async with asyncio.timeout(patience_s):
                        await self._ask(session, rng)
                except TimeoutError:
                    pass  # it has left
                except (aiohttp.ClientError, OSError):
                    await asyncio.sleep(0.05)  # its gateway is gone: another, or the same again

    async def _ask(self, session: aiohttp.ClientSession, rng: random.Random) -> None:
        body = {
            "model": f"probe/{rng.choice(BEHAVIOURS)}",
            "messages": [{"role": "user", "content": f"Question {rng.random()}"}],
            "stream": rng.random() < 0.6,
        }
        gateway = rng.choice(self.gateways)
        async with session.post(f"{gateway.base_url}/chat/completions", json=body) as response:
            seen = self.seen[response.headers["x-request-id"]] = Seen()
            if body["stream"] and response.status == 200:
                async for line in response.content:
                    seen.num_pieces += b'"choices":[{' in line.replace(b" ", b"")
                    seen.whole |= line.strip() == b"data: [DONE]"
            else:
                await response.read()
                seen.whole = response.status == 200


@contextlib.asynccontextmanager
async def counting_upstream() -> Any:
    upstream = CountingUpstream()
    with upstream.server:
        yield upstream
