"""Limits hold under concurrency, in one process and through Redis; what is not used is given back."""

import asyncio
import logging
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RateLimitError
from gateway.tenants.limits import Limiter, Ticket
from gateway.tenants.local_counts import Bucket
from gateway.tenants.tally import Standing
from gateway.tenants.terms import Owner, Quota
from gateway.tenants.tickets import UNLIMITED
from gateway.tenants.types import Key, Limits, Principal, Tenant


def principal(tenant_id: str = "t1", **limits: int | None) -> Principal:
    tenant = Tenant(id=tenant_id, name=tenant_id, limits=Limits(**limits))
    return Principal(tenant=tenant, key=Key(id="k", tenant_id=tenant_id, name="k", prefix="sk-th-abcd"))


@pytest.fixture(params=["here", "redis"])
def where(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "here" else str(request.getfixturevalue("redis_url"))


async def admitted(tickets: list[Ticket | BaseException]) -> int:
    assert all(isinstance(each, Ticket | RateLimitError) for each in tickets), tickets
    return sum(isinstance(each, Ticket) for each in tickets)


@pytest.mark.anyio
async def test_a_tenant_without_limits_is_admitted_without_asking(where: str) -> None:
    limiter = Limiter(Limits(), where)
    ticket = await limiter.admit(principal())
    assert ticket is UNLIMITED
    await ticket.reserve(10**9, 10**9)
    await ticket.settle(10**9, 10**9)
    assert ticket.headers() == []
    await limiter.aclose()


@pytest.mark.anyio
async def test_requests_per_minute(where: str) -> None:
    limiter = Limiter(Limits(requests_per_minute=3), where)
    tickets = await asyncio.gather(*(limiter.admit(principal()) for _ in range(50)), return_exceptions=True)
    assert await admitted(tickets) == 3
    refusal = next(each for each in tickets if isinstance(each, RateLimitError))
    assert (refusal.status, refusal.type, refusal.code) == (429, "requests", "rate_limit_exceeded")
    assert 15 <= int(refusal.headers["retry-after"]) <= 20  # a third of a minute brings one back
    assert refusal.headers["x-ratelimit-limit-requests"] == "3"
    assert refusal.headers["x-ratelimit-remaining-requests"] == "0"
    assert refusal.headers["x-ratelimit-reset-requests"] in ("1m0s", "60s")
    assert await limiter.admit(principal("another tenant"))
    await limiter.aclose()


@pytest.mark.anyio
async def test_a_tenants_own_limit_comes_before_the_default_and_zero_lifts_it(where: str) -> None:
    limiter = Limiter(Limits(requests_per_minute=1), where)
    own = [await limiter.admit(principal("own", requests_per_minute=2)) for _ in range(2)]
    assert len(own) == 2
    with pytest.raises(RateLimitError):
        await limiter.admit(principal("own", requests_per_minute=2))
    for _ in range(5):
        await limiter.admit(principal("free", requests_per_minute=0))
    await limiter.aclose()


@pytest.mark.anyio
async def test_fifty_reservations_through_two_gateways_against_a_limit_for_three(redis_url: str) -> None:
    limiters = [Limiter(Limits(tokens_per_minute=300), redis_url) for _ in range(2)]

    async def one(number: int) -> Ticket:
        ticket = await limiters[number % 2].admit(principal())
        try:
            await ticket.reserve(100)
        except RateLimitError:
            await ticket.settle()
            raise
        return ticket

    tickets = await asyncio.gather(*(one(number) for number in range(50)), return_exceptions=True)
    assert await admitted(tickets) == 3
    refusal = next(each for each in tickets if isinstance(each, RateLimitError))
    assert (refusal.type, refusal.code) == ("tokens", "rate_limit_exceeded")
    assert refusal.headers["x-ratelimit-limit-tokens"] == "300"
    assert refusal.headers["x-ratelimit-remaining-tokens"] == "0"
    for limiter in limiters:
        await limiter.aclose()


@pytest.mark.anyio
async def test_concurrent_requests_through_two_gateways(redis_url: str) -> None:
    limiters = [Limiter(Limits(concurrent_requests=3), redis_url) for _ in range(2)]
    tickets = await asyncio.gather(
        *(limiters[number % 2].admit(principal()) for number in range(50)), return_exceptions=True
    )
    assert await admitted(tickets) == 3
    first = next(each for each in tickets if isinstance(each, Ticket))
    await first.settle()
    await first.settle()  # counts once
    again = await asyncio.gather(*(limiters[0].admit(principal()) for _ in range(5)), return_exceptions=True)
    assert await admitted(again) == 1
    for limiter in limiters:
        await limiter.aclose()


@pytest.mark.anyio
async def test_concurrent_requests_are_released(where: str) -> None:
    limiter = Limiter(Limits(concurrent_requests=2), where)
    first, second = await limiter.admit(principal()), await limiter.admit(principal())
    with pytest.raises(RateLimitError) as refused:
        await limiter.admit(principal())
    assert (refused.value.code, refused.value.type) == ("concurrency_limit_exceeded", "requests")
    assert refused.value.headers["retry-after"] == "1"
    await first.settle(10)
    await first.settle(10)
    third = await limiter.admit(principal())
    with pytest.raises(RateLimitError):
        await limiter.admit(principal())
    await second.settle()
    await third.settle()
    await limiter.aclose()


@pytest.mark.anyio
async def test_a_refusal_for_concurrency_takes_no_request(where: str) -> None:
    limiter = Limiter(Limits(concurrent_requests=1, requests_per_minute=2), where)
    first = await limiter.admit(principal())
    for _ in range(5):
        with pytest.raises(RateLimitError, match="at once"):
            await limiter.admit(principal())
    await first.settle()
    assert dict((await limiter.admit(principal())).headers())[b"x-ratelimit-remaining-requests"] == b"0"
    await limiter.aclose()


@pytest.mark.anyio
async def test_a_refusal_for_requests_takes_no_slot(where: str) -> None:
    limiter = Limiter(Limits(requests_per_minute=1, concurrent_requests=1), where)
    await (await limiter.admit(principal())).settle()
    for _ in range(3):
        with pytest.raises(RateLimitError, match="per minute"):
            await limiter.admit(principal())
    await limiter.aclose()


@pytest.mark.anyio
async def test_unused_tokens_come_back_and_a_hit_uses_none(where: str) -> None:
    limiter = Limiter(Limits(tokens_per_minute=1000), where)
    for _ in range(20):  # far more than the limit, if they counted
        hit = await limiter.admit(principal())
        await hit.reserve(900)
        await hit.settle(0)
    real = await limiter.admit(principal())
    await real.reserve(900)
    await real.settle(400)
    ticket = await limiter.admit(principal())
    await ticket.reserve(600)
    with pytest.raises(RateLimitError) as refused:
        await (await limiter.admit(principal())).reserve(100)
    assert 1 <= int(refused.value.headers["retry-after"]) <= 6
    await limiter.aclose()


@pytest.mark.anyio
async def test_tokens_beyond_the_reservation_are_paid_back(where: str) -> None:
    limiter = Limiter(Limits(tokens_per_minute=1000), where)
    ticket = await limiter.admit(principal())
    await ticket.reserve(100)
    await ticket.settle(2000)
    with pytest.raises(RateLimitError) as refused:
        await (await limiter.admit(principal())).reserve(1)
    assert 55 <= int(refused.value.headers["retry-after"]) <= 61
    assert refused.value.headers["x-ratelimit-remaining-tokens"] == "0"
    await limiter.aclose()


@pytest.mark.anyio
async def test_a_larger_reservation_adds_to_the_first(where: str) -> None:
    limiter = Limiter(Limits(tokens_per_minute=1000), where)
    ticket = await limiter.admit(principal())
    await ticket.reserve(400)
    await ticket.reserve(200)
    await ticket.reserve(700)
    with pytest.raises(RateLimitError):
        await (await limiter.admit(principal())).reserve(400)
    await ticket.settle(0)
    await (await limiter.admit(principal())).reserve(1000)
    await limiter.aclose()


@pytest.mark.anyio
async def test_what_can_never_fit_says_so(where: str) -> None:
    limiter = Limiter(Limits(tokens_per_minute=1000), where)
    with pytest.raises(RateLimitError, match="5000 tokens, more than the 1000") as refused:
        await (await limiter.admit(principal())).reserve(5000)
    assert (refused.value.code, refused.value.type, refused.value.status) == ("tokens_limit_exceeded", "tokens", 429)
    assert refused.value.headers == {"x-should-retry": "false"}  # a retry can't help, so official clients make none
    await limiter.aclose()


@pytest.mark.anyio
async def test_a_crashed_gateway_pins_no_slots(redis_url: str) -> None:
    crashed = Limiter(Limits(concurrent_requests=1), redis_url, lease_s=0.6)
    await crashed.admit(principal())
    living = Limiter(Limits(concurrent_requests=1), redis_url, lease_s=0.6)
    await asyncio.sleep(1.0)  # longer than the lease: it was renewed
    with pytest.raises(RateLimitError):
        await living.admit(principal())
    await crashed.aclose()  # renews no more, and never settles
    until = time.monotonic() + 3
    while True:
        try:
            await living.admit(principal())
            break
        except RateLimitError:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
    await living.aclose()


@pytest.mark.anyio
async def test_a_cancelled_admission_leaves_no_slot_behind(redis_url: str) -> None:
    limiter = Limiter(Limits(concurrent_requests=5), redis_url)
    for _ in range(40):
        task = asyncio.create_task(limiter.admit(principal()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0.3)
    tickets = await asyncio.gather(*(limiter.admit(principal()) for _ in range(5)), return_exceptions=True)
    assert await admitted(tickets) == 5
    await limiter.aclose()


@pytest.mark.anyio
async def test_redis_goes_and_comes_back(redis_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tollhouse.limits")
    limiter = Limiter(Limits(requests_per_minute=5, concurrent_requests=3, tokens_per_minute=100), redis_server.url)
    before = await limiter.admit(principal())
    await before.reserve(10)
    redis_server.stop()
    during = []
    for _ in range(2):
        ticket = await limiter.admit(principal())
        await ticket.reserve(10)
        during.append(ticket)
    assert not limiter.shared
    await before.settle(5)  # its Redis is gone: no error
    third = await limiter.admit(principal())
    with pytest.raises(RateLimitError):  # limits still hold, in this process
        await limiter.admit(principal())
    redis_server.start()
    until = time.monotonic() + 5
    while not limiter.shared:
        assert time.monotonic() < until
        await asyncio.sleep(0.05)
    for ticket in (*during, third):
        await ticket.settle(10)
    await (await limiter.admit(principal())).settle()
    messages = [record.message for record in caplog.records]
    assert len(messages) == 2
    assert "Redis is away" in messages[0]
    assert "Redis is back" in messages[1]
    await limiter.aclose()


@pytest.mark.anyio
async def test_redis_going_in_mid_request(redis_server: Any) -> None:
    limiter = Limiter(Limits(concurrent_requests=3, tokens_per_minute=100), redis_server.url)
    ticket = await limiter.admit(principal())
    redis_server.stop()
    await ticket.reserve(60)
    await ticket.settle(10)
    await (await limiter.admit(principal())).reserve(90)
    await limiter.aclose()


@pytest.mark.anyio
async def test_a_redis_that_never_was_is_survived() -> None:
    limiter = Limiter(Limits(requests_per_minute=1), "redis://127.0.0.1:1/0")
    await limiter.admit(principal())
    with pytest.raises(RateLimitError):
        await limiter.admit(principal())
    await limiter.aclose()


def test_a_bad_redis_url_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="redis://host:6379"):
        Limiter(Limits(), "http://example")


@given(
    limit=st.integers(1, 10_000),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 3000)), max_size=60),
)
def test_a_bucket_never_admits_more_than_allowance_and_refill(limit: int, steps: list[tuple[float, int]]) -> None:
    bucket, now, taken = Bucket(limit, 0.0), 0.0, 0
    quota = Quota(Owner("tenant", "t1"), limit)
    for pause, amount in steps:
        now += pause
        level = bucket.level(limit, now)
        standing = Standing("tokens", quota, amount <= level, level, amount)
        if standing.admitted:
            bucket.take(amount)
            taken += amount
        assert taken <= limit + now * limit / 60 + 1e-6
        assert 0 <= standing.reset_s <= 60 + 1e-6
        if not standing.admitted and amount <= limit:
            later = now + standing.retry_after_s + 1e-6
            assert Bucket(limit, now).level(limit, later) >= 0
            assert standing.remaining + standing.retry_after_s * limit / 60 >= amount - 1e-6
