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
        self.watched = asyncio.Event()
        self.num_watching = 0
        self.before: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        self.watched.set()
        if self.before:
            return self.before.pop(0)
        self.num_watching += 1
        try:
            await self.gone.wait()
        finally:
            self.num_watching -= 1
        return {"type": "http.disconnect"}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is watched from the start."""
    monkeypatch.setattr("gateway.departure.PATIENCE_S", 0)


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
        with Departure(connection.receive):
            await work()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0.01)
    connection.gone.set()
    with pytest.raises(ClientClosedRequest):
        await task
    assert cancelled.is_set()
    assert task.cancelling() == 0


async def test_work_that_ends_first_is_left_alone(at_once: None) -> None:
    connection = Connection()
    with Departure(connection.receive):
        await connection.watched.wait()
    connection.gone.set()
    await asyncio.sleep(0.01)  # raises if anything still cancels this task
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert connection.num_watching == 0


async def test_quick_work_is_not_watched_for() -> None:
    connection = Connection()
    with Departure(connection.receive):
        await asyncio.sleep(0)
    await asyncio.sleep(0.08)
    assert not connection.watched.is_set()


async def test_another_cancellation_stays_a_cancellation(at_once: None) -> None:
    connection = Connection()

    async def serve() -> None:
        with Departure(connection.receive):
            await asyncio.sleep(30)

    task = asyncio.create_task(serve())
    await connection.watched.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    await asyncio.sleep(0)
    assert connection.num_watching == 0


async def test_a_timeout_of_the_works_own_stays_a_timeout(at_once: None) -> None:
    async def serve() -> None:
        with Departure(Connection().receive):
            async with asyncio.timeout(0.02):
                await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        await serve()


async def test_what_else_the_client_sends_is_passed_over(at_once: None) -> None:
    connection = Connection()
    connection.before = [{"type": "http.request", "body": b"more", "more_body": False}]

    async def serve() -> None:
        with Departure(connection.receive):
            await connection.watched.wait()
            await asyncio.sleep(0.01)
            connection.gone.set()
            await asyncio.sleep(30)

    with pytest.raises(ClientClosedRequest):
        await serve()


async def test_errors_of_the_work_pass_through() -> None:
    with pytest.raises(ValueError, match="mine"):
        with Departure(Connection().receive):
            raise ValueError("mine")
