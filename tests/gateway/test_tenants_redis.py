"""Counting in Redis over a line that breaks at the worst moment: nothing is counted twice, and nothing stays held."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.tenants.limits import Limiter, Ticket
from gateway.tenants.refusals import BudgetExceeded
from tests.support.budgets import NOON, RememberedBooks, budget, limiter, principal
from tests.support.redis_line import Line, line_before

pytestmark = pytest.mark.anyio
USD = 10**9


@pytest.fixture
async def line(redis_url: str) -> AsyncIterator[Line]:
    async with line_before(redis_url) as made:
        yield made


async def reserve(gate: Limiter, cost: int) -> Ticket:
    ticket = await gate.admit(principal(), at=NOON)
    try:
        await ticket.reserve(10, cost)
    except BaseException:
        await ticket.settle()
        raise
    return ticket


async def test_a_settlement_whose_answer_is_lost_counts_once(line: Line, redis_url: str) -> None:
    books, limits = RememberedBooks(), budget("tenant", "t1", 3 * USD)
    gate, other = limiter(line.url, books, limits), limiter(redis_url, books, limits)
    await (await reserve(gate, 1)).settle()  # Redis knows the scripts by now
    ticket = await reserve(gate, USD)
    books.settle(principal(), NOON, USD)
    line.cuts_next = True
    await ticket.settle(10, USD)
    assert not line.cuts_next
    with pytest.raises(BudgetExceeded):
        await reserve(other, 2 * USD + 1)
    await (await reserve(other, 2 * USD)).settle()
    for each in (gate, other):
        await each.aclose()


async def test_an_idle_connection_that_was_closed_is_no_outage(redis_url: str) -> None:
    gate = limiter(redis_url, RememberedBooks(), budget("tenant", "t1", USD), when_redis_is_away="refuse")
    await (await reserve(gate, 1)).settle()
    operator = Redis.from_url(redis_url)
    assert await operator.client_kill_filter(_type="normal", skipme=True)
    await operator.aclose()
    await (await reserve(gate, 1)).settle()
    assert gate.shared
    await gate.aclose()


async def test_whoever_is_stopped_twice_holds_nothing(line: Line) -> None:
    """While dollars are reserved, and again while they are given back."""
    gate = limiter(line.url, RememberedBooks(), budget("tenant", "t1", USD))
    await (await reserve(gate, 1)).settle()
    ticket = await gate.admit(principal(), at=NOON)
    line.hold()
    reserving = asyncio.create_task(ticket.reserve(10, USD))
    await line.has_asked.wait()
    reserving.cancel()
    settling = asyncio.create_task(ticket.settle())
    await asyncio.sleep(0)
    settling.cancel()
    await asyncio.gather(reserving, settling, return_exceptions=True)
    line.is_open.set()
    async with asyncio.timeout(5):
        while not await is_admitted(gate, USD):
            await asyncio.sleep(0.01)
    await gate.aclose()


async def is_admitted(gate: Limiter, cost: int) -> bool:
    try:
        await (await reserve(gate, cost)).settle()
    except BudgetExceeded:
        return False
    return True


async def test_a_hard_budget_is_spent_to_the_last_nano_dollar_and_no_further(redis_url: str) -> None:
    books, limits = RememberedBooks(), budget("tenant", "t1", 10)
    for url in ("", redis_url):
        gate = limiter(url, books, limits)
        await (await reserve(gate, 2)).settle(10, 2)
        with pytest.raises(BudgetExceeded):
            await reserve(gate, 9)
        await (await reserve(gate, 8)).settle(10, 8)
        with pytest.raises(BudgetExceeded):
            await reserve(gate, 1)
        await gate.aclose()
