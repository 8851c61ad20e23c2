"""Several deployments of one model: who gets the next request, and where a failed one goes (cases D24, D26 to D28)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.errors import UpstreamError
from gateway.upstream.breaker import Breaker
from gateway.upstream.deployment import Deployment
from gateway.upstream.errors import ConnectFailure
from gateway.upstream.fleet import Balance, Fleet
from gateway.upstream.load import DECAY_S, Load, PeakEwma
from gateway.upstream.types import Outbound, Reply
from tests.support.attempts import House

Check = Callable[[], Awaitable[None]]


class Nobody:
    name = "nobody"

    async def send(self, outbound: Outbound) -> Reply:
        raise AssertionError("nobody is called here")

    async def aclose(self) -> None: ...


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def deployment(name: str, weight: float = 1.0, clock: Clock | None = None, check: Check | None = None) -> Deployment:
    clock = clock or Clock()
    breaker = Breaker(max_failures=1, cool_down_s=10, clock=clock)
    return Deployment("m", Nobody(), name, breaker, weight=weight, load=Load(clock), check=check)


def fleet(*deployments: Deployment, balance: Balance = "weighted") -> Fleet:
    return Fleet(deployments, balance)


def pick(fleet: Fleet, *tried: Deployment, stream: bool = True) -> str:
    picked = fleet.pick(tried, stream=stream)
    return picked.upstream_model if picked else ""


# Who is next.


def test_requests_are_spread_by_weight() -> None:
    counted = Counter(pick(fleet(deployment("a", 3), deployment("b", 1))) for _ in range(4000))
    assert 0.7 < counted["a"] / 4000 < 0.8


def test_the_least_busy_is_next_and_weights_decide_between_equals() -> None:
    a, b = deployment("a", 9), deployment("b", 1)
    both = fleet(a, b, balance="least-busy")
    counted = Counter(pick(both) for _ in range(2000))
    assert 0.85 < counted["a"] / 2000 < 0.95
    a.load.outstanding = 2
    b.load.outstanding = 1
    assert {pick(both) for _ in range(20)} == {"b"}


def test_the_quickest_is_next_until_it_is_busy() -> None:
    quick, slow = deployment("quick"), deployment("slow")
    both = fleet(quick, slow, balance="least-latency")
    quick.load.observe(0.1, stream=True)
    slow.load.observe(0.35, stream=True)
    assert {pick(both) for _ in range(20)} == {"quick"}
    quick.load.outstanding = 3  # 0.1 s each, against 0.35 s at the other one
    assert {pick(both) for _ in range(20)} == {"slow"}


def test_one_that_was_never_called_is_tried_once_at_a_time() -> None:
    known, cold = deployment("known"), deployment("cold")
    both = fleet(known, cold, balance="least-latency")
    known.load.observe(0.1, stream=True)
    assert {pick(both) for _ in range(20)} == {"cold"}
    cold.load.outstanding = 1
    assert {pick(both) for _ in range(20)} == {"known"}


def test_streams_and_whole_answers_are_not_compared_with_each_other() -> None:
    a, b = deployment("a"), deployment("b")
    both = fleet(a, b, balance="least-latency")
    for stream, of_a, of_b in ((True, 0.1, 0.2), (False, 9.0, 5.0)):
        a.load.observe(of_a, stream=stream)
        b.load.observe(of_b, stream=stream)
    assert pick(both, stream=True) == "a"
    assert pick(both, stream=False) == "b"


def test_what_was_slow_is_tried_again_after_a_while() -> None:
    clock = Clock()
    quick, slow = deployment("quick", clock=clock), deployment("slow", clock=clock)
    both = fleet(quick, slow, balance="least-latency")
    slow.load.observe(5.0, stream=True)
    for _ in range(20):
        quick.load.observe(0.1, stream=True)
        assert pick(both) == "quick"
        clock.now += 1.0
    clock.now += 20.0
    quick.load.observe(0.1, stream=True)
    assert pick(both) == "slow"


def test_the_average_jumps_up_at_once_and_comes_down_slowly() -> None:
    average = PeakEwma()
    assert average.at(0.0) is None
    average.observe(0.1, 0.0)
    average.observe(2.0, 1.0)
    assert average.at(1.0) == 2.0
    average.observe(0.1, 2.0)
    latest = average.at(2.0)
    assert latest is not None
    assert 1.0 < latest < 2.0
    later = average.at(2.0 + DECAY_S)
    assert later == pytest.approx(latest / 2.718281828)


# Who is passed over.


def test_a_broken_one_is_passed_over_and_probed_by_one_request() -> None:
    clock = Clock()
    broken, well = deployment("broken", 1000, clock), deployment("well", clock=clock)
    both = fleet(broken, well)
    broken.breaker.failure()
    assert {pick(both) for _ in range(20)} == {"well"}
    clock.now += 11
    assert pick(both) == "broken"
    assert {pick(both) for _ in range(20)} == {"well"}  # until the probe's outcome is known
    broken.breaker.success()
    assert "broken" in {pick(both) for _ in range(20)}


def test_nobody_is_left_when_all_were_tried_or_are_open() -> None:
    a, b = deployment("a"), deployment("b")
    assert pick(fleet(a, b), a, b) == ""
    a.breaker.failure()
    assert pick(fleet(a, b), b) == ""


@pytest.mark.anyio
async def test_a_free_check_stands_for_the_probe() -> None:
    clock, asked = Clock(), asyncio.Event()
    outcome: list[Exception | None] = [ConnectFailure("still away"), None]

    async def check() -> None:
        asked.set()
        if (fault := outcome.pop(0)) is not None:
            raise fault

    broken, well = deployment("broken", 1000, clock, check), deployment("well", clock=clock)
    both = fleet(broken, well)
    broken.breaker.failure()
    assert pick(both) == "well"
    assert not asked.is_set()
    for cool_down, state in ((10, "open"), (20, "closed")):
        clock.now += cool_down + 1
        assert {pick(both) for _ in range(5)} == {"well"}  # no request is risked on it
        await asyncio.wait_for(asked.wait(), 5)
        await asyncio.sleep(0)
        asked.clear()
        assert broken.breaker.state == state
    assert outcome == []
    assert "broken" in {pick(both) for _ in range(20)}


@pytest.mark.anyio
async def test_the_check_of_a_provider_generates_nothing(house: House) -> None:
    await house.backend.check()
    (request,) = house.upstream.received
    assert (request.method, request.path, request.raw) == ("GET", "/v1/models", b"")
    assert request.headers["authorization"].startswith("Bearer ")


# Where a failed request goes.


def spread(house: House, *behaviours: str, retries: int = 0) -> Fleet:
    return Fleet(
        [
            Deployment("ours", house.backend, behaviour, Breaker(max_failures=3), retries, weight=1e9**-index)
            for index, behaviour in enumerate(behaviours)
        ]
    )


@pytest.mark.anyio
async def test_a_retry_goes_to_another_deployment_first_and_at_once(house: House) -> None:
    served = await house.ask(spread(house, "500", "ok", retries=3))
    assert [(each.upstream_model, each.status) for each in served.attempts] == [("500", "error"), ("ok", "ok")]
    assert {each.model for each in served.attempts} == {"ours"}
    gap_s = served.attempts[1].started_at - served.attempts[0].started_at - served.attempts[0].latency_ms / 1e3
    assert gap_s < 0.045  # less than the shortest backoff


@pytest.mark.anyio
async def test_tries_of_several_deployments_do_not_multiply(house: House) -> None:
    """Each once; then as many more of the last as make up max_retries."""
    for retries, num_sent in ((0, 2), (1, 2), (2, 3)):
        house.upstream.received.clear()
        with pytest.raises(UpstreamError):
            await house.ask(spread(house, "500", "502", retries=retries))
        assert house.sent("500") + house.sent("502") == num_sent
        assert house.sent("500") == 1


@pytest.mark.anyio
async def test_another_model_comes_after_all_deployments_of_the_first(house: House) -> None:
    served = await house.ask(spread(house, "500", "reset"), house.deployment("ok"))
    assert [each.upstream_model for each in served.attempts] == ["500", "reset", "ok"]


@pytest.mark.anyio
@pytest.mark.parametrize("behaviour", ["429", "429-date", "503-busy"])
async def test_a_deployment_that_asked_for_rest_gets_it(house: House, behaviour: str) -> None:
    both = spread(house, behaviour, "ok", retries=1)
    for _ in range(5):
        assert (await house.ask(both)).reply.status == 200
    assert house.sent(behaviour) == 1
    assert 5 < both.deployments[0].breaker.open_for_s <= 7


@pytest.mark.anyio
async def test_a_deployment_with_a_bad_key_does_not_take_the_others_along(house: House) -> None:
    assert (await house.ask(spread(house, "401", "ok"))).reply.status == 200


@pytest.mark.anyio
@pytest.mark.parametrize(("behaviour", "stream"), [("ok", False), ("ok", True), ("500", False), ("silence", True)])
async def test_calls_under_way_are_counted_and_timed(house: House, behaviour: str, stream: bool) -> None:
    only = house.deployment(behaviour)
    served: Any = None
    try:
        served = await house.ask(only, stream=stream)
    except UpstreamError:
        assert only.load.latency_s(stream=stream) is None or behaviour == "silence"  # a late one is slow at least
    else:
        assert only.load.latency_s(stream=stream) is not None
        assert only.load.latency_s(stream=not stream) is None
    if served is not None and served.is_stream:
        assert only.load.outstanding == 1
        served.finish()
        await served.reply.aclose()
    assert only.load.outstanding == 0
