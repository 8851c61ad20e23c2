"""The breaker of a deployment: who has failed, or asked for time, is left alone (cases D26 and D28)."""

import asyncio
import statistics
import time

import pytest

from gateway.errors import (
    UpstreamError,
)
from gateway.ledger.records import AttemptRecord
from gateway.upstream.breaker import Breaker
from tests.support.attempts import House


@pytest.mark.anyio
async def test_a_busy_deployment_is_left_alone_as_long_as_it_asks(house: House) -> None:
    busy, spare = house.deployment("429"), house.deployment("ok")
    for _ in range(5):
        assert (await house.ask(busy, spare)).reply.status == 200
    assert house.sent("429") == 1


@pytest.mark.anyio
async def test_a_dead_primary_is_not_hit_on_every_request(house: House) -> None:
    dead, spare = house.deployment("500", retries=1, breaker=Breaker(max_failures=3)), house.deployment("ok")
    times = []
    for _ in range(20):
        started = time.perf_counter()
        assert (await house.ask(dead, spare)).reply.status == 200
        times.append(time.perf_counter() - started)
    assert house.sent("500") == 3
    assert statistics.median(times[3:]) < 0.1


@pytest.mark.anyio
async def test_a_primary_that_is_back_is_found_by_one_probe(house: House) -> None:
    now = 0.0
    breaker = Breaker(max_failures=1, cool_down_s=10, clock=lambda: now)
    primary, spare = house.deployment("flaky", breaker=breaker), house.deployment("ok")
    assert (await house.ask(primary, spare)).deployment is spare
    assert (await house.ask(primary, spare)).deployment is spare
    now = 11.0
    assert (await house.ask(primary, spare)).deployment is primary
    assert (await house.ask(primary, spare)).deployment is primary
    assert house.sent("flaky") == 3


@pytest.mark.anyio
async def test_when_all_are_left_alone_one_is_tried_once(house: House) -> None:
    dead = house.deployment("reset", retries=2, breaker=Breaker(max_failures=1))
    for _ in range(3):
        with pytest.raises(UpstreamError):
            await house.ask(dead)
    assert house.sent("reset") == 3


@pytest.mark.anyio
async def test_a_probe_that_never_left_makes_room_for_another(house: House) -> None:
    breaker = Breaker(max_failures=1, cool_down_s=0.0)
    breaker.failure()

    def full(record: AttemptRecord) -> None:
        raise OSError("no space left on device")

    house.books.attempt_opened = full  # type: ignore[method-assign]  # the journal's disk
    with pytest.raises(OSError, match="no space left"):
        await house.ask(house.deployment("ok", breaker=breaker))
    assert not breaker.is_open
    assert breaker.allow()


@pytest.mark.anyio
async def test_no_health_check_spends_money(house: House) -> None:
    """Health is learned from the traffic itself: an idle house sends nothing."""
    await house.ask(house.deployment("ok"))
    before = len(house.upstream.received)
    await asyncio.sleep(1.0)
    assert len(house.upstream.received) == before
