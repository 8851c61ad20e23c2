"""One gateway, one tenant and a worker, for tests of batches."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.batches.types import Batch
from gateway.batches.worker import Worker
from gateway.tenants.types import Principal
from gateway.wire.batches_api import BatchRequest
from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.faults.misbehaviours import completion
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate

CHAT = "/v1/chat/completions"


def line(number: int, model: str = "probe/ok", url: str = CHAT, **changes: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": f"Question {number}?"}]}
    return {"custom_id": f"q-{number}", "method": "POST", "url": url, "body": body} | changes


class Room:
    """One gateway, one tenant, and what the tenant does with batches."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.house = gate.house
        self.principal: Principal = gate.house.authenticator.authenticate(f"Bearer {gate.key}")
        self.tenant_id = self.principal.tenant.id

    async def file(self, *lines: Any, purpose: str = "batch") -> str:
        raw = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines)
        writing = await self.house.files.begin(self.tenant_id)
        await writing.write(raw)
        return (await writing.finish(filename="in.jsonl", purpose=purpose)).id

    async def create(self, *lines: Any, endpoint: str = CHAT, **fields: Any) -> Batch:
        wanted = BatchRequest(await self.file(*lines), endpoint, "24h", **fields)
        return await self.house.batches.create(self.principal, wanted)

    async def find(self, batch: Batch) -> Batch:
        return await self.house.batches.find(self.tenant_id, batch.id)

    async def ended(self, batch: Batch, seconds: float = 30.0) -> Batch:
        return await self.until(batch, lambda now: not now.unfinished, seconds)

    async def until(self, batch: Batch, condition: Callable[[Batch], bool], seconds: float = 30.0) -> Batch:
        async with asyncio.timeout(seconds):
            while not condition(now := await self.find(batch)):
                await asyncio.sleep(0.02)
        return now

    async def read(self, file_id: str | None) -> list[dict[str, Any]]:
        if file_id is None:
            return []
        file = await self.house.files.find(self.tenant_id, file_id)
        raw = b"".join([part async for part in self.house.files.parts(file.id)])
        assert len(raw) == file.num_bytes
        return [json.loads(each) for each in raw.splitlines()]


@pytest.fixture
async def room(gate_with: OpenGate) -> Room:
    return Room(await gate_with(CONFIG))


@pytest.fixture
async def worker(room: Room) -> AsyncIterator[Worker]:
    worker = Worker(room.house, room.gate.pipeline)
    await worker.start()
    yield worker
    await worker.aclose()


class Hold:
    """A behaviour of the upstream that answers once it is let go."""

    def __init__(self, upstream: MisbehavingUpstream, name: str = "held") -> None:
        self.upstream = upstream
        self.name = name
        self._let_go = False
        upstream.on(name, self)

    def let_go(self) -> None:
        self._let_go = True

    @property
    def num_asked(self) -> int:
        return len(self.upstream.of(self.name))

    async def __call__(self, wire: Wire) -> None:
        while not self._let_go:
            await asyncio.sleep(0.01)
        await wire.json(completion("held"))
