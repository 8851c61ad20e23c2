"""A client that leaves stops the work; everything else passes through."""

import asyncio
from typing import Any

import pytest

from gateway.departure import Departure
from gateway.errors import ClientClosedRequest

pytestmark = pytest.mark.anyio


class Connection:
    """ASGI's receive: nothing until the client leaves."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def test_leaving_cancels_and_is_told_as_such() -> None:
    connection = Connection()
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def serve() -> None:
        async with Departure(connection.receive):
            await work()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0.01)
    connection.gone.set()
    with pytest.raises(ClientClosedRequest):
        await task
    assert cancelled.is_set()
    assert task.cancelling() == 0


async def test_work_that_ends_first_is_left_alone() -> None:
    connection = Connection()
    async with Departure(connection.receive):
        await asyncio.sleep(0)
    connection.gone.set()
    await asyncio.sleep(0.01)


async def test_another_cancellation_stays_a_cancellation() -> None:
    async def serve() -> None:
        async with Departure(Connection().receive):
            await asyncio.sleep(30)

    task = asyncio.create_task(serve())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_errors_of_the_work_pass_through() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with Departure(Connection().receive):
            raise ValueError("mine")
