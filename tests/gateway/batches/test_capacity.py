"""Batches yield: to a tenant's limits, and to requests that somebody waits for."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from gateway.batches.capacity import LOOK_AGAIN_S, IdleCapacity
from gateway.batches.worker import Worker
from gateway.tenants.types import Limits
from tests.gateway.batches.conftest import Room, line

pytestmark = pytest.mark.anyio


async def test_a_tenants_limits_slow_a_batch_down_and_fail_nothing(room: Room, worker: Worker) -> None:
    room.gate.key = await room.gate.tenant("slow", Limits(concurrent_requests=1))
    slow = Room(room.gate)
    ended = await slow.ended(await slow.create(*(line(number) for number in range(5))))
    assert (ended.num_completed, ended.num_failed) == (5, 0)


async def test_lines_yield_to_requests_that_somebody_waits_for() -> None:
    inside = 0
    capacity = IdleCapacity(lambda: 3, lambda: inside)
    async with AsyncExitStack() as lines, asyncio.timeout(10):
        for _ in range(3):
            await lines.enter_async_context(capacity.place())
        inside = 3  # its own
        waiting = asyncio.create_task(lines.enter_async_context(capacity.place()))
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        assert not waiting.done()
        waiting.cancel()
    inside = 100
    async with asyncio.timeout(10), capacity.place():  # one may always run
        second = asyncio.create_task(_pass(capacity))
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        assert not second.done()
        inside = 2
        await second


async def _pass(capacity: IdleCapacity) -> None:
    async with capacity.place():
        pass
