"""Retries: how many, after what wait, and within which deadline (cases D24, D25 and D27)."""

import dataclasses
import time

import pytest

from gateway.config import ProviderConfig
from gateway.errors import (
    UpstreamError,
    UpstreamTimeout,
)
from gateway.time_limit import TimeLimit
from gateway.upstream.attempts import Deployment
from gateway.upstream.http_backend import HttpBackend
from gateway.upstream.types import Timeouts
from tests.support.attempts import House, error_of


@pytest.mark.anyio
async def test_retries_do_not_multiply(house: House) -> None:
    """max_retries = 2, one deployment, an upstream that always fails: exactly three requests, three attempts."""
    with pytest.raises(UpstreamError) as raised:
        await house.ask(house.deployment("500", retries=2))
    assert house.sent("500") == 3
    assert [record.index for record in house.books.closed] == [0, 1, 2]
    assert {record.request_id for record in house.books.closed} == {"r1"}
    assert {(record.status, record.http_status, record.error_code) for record in house.books.closed} == {
        ("error", 500, "http_500")
    }
    assert raised.value.status == 502
    assert "our-500 (mock): http_500" in raised.value.message
    assert "sk-" not in raised.value.message


@pytest.mark.anyio
async def test_a_hiccup_is_mended_by_a_retry(house: House) -> None:
    served = await house.ask(house.deployment("flaky", retries=1))
    assert served.reply.status == 200
    assert [record.status for record in served.attempts] == ["error", "ok"]


@pytest.mark.anyio
@pytest.mark.parametrize("behaviour", ["429", "429-date", "429-absurd", "503-busy"])
async def test_a_long_wait_is_the_clients_to_make(house: House, behaviour: str) -> None:
    """No retry before Retry-After; the last candidate's answer passes as it came."""
    started = time.perf_counter()
    served = await house.ask(house.deployment(behaviour, retries=3))
    assert time.perf_counter() - started < 1.0
    assert house.sent(behaviour) == 1
    assert served.reply.status == int(behaviour[:3])
    assert b"retry-after" in dict(served.reply.headers)
    assert error_of(served)["code"] == "rate_limit_exceeded"
    assert house.books.closed == [served.record] == list(served.attempts)


@pytest.mark.anyio
async def test_a_short_wait_is_waited(house: House) -> None:
    started = time.perf_counter()
    served = await house.ask(house.deployment("429-soon", retries=2))
    assert 1.0 <= time.perf_counter() - started < 3.0
    assert served.reply.status == 200
    assert house.sent("429-soon") == 2


@pytest.mark.anyio
async def test_a_wait_beyond_the_deadline_is_not_begun(house: House) -> None:
    """The refusal that is there passes, instead of a timeout in its place."""
    served = await house.ask(house.deployment("429-soon", retries=2), deadline_s=0.9)
    assert served.reply.status == 429
    assert house.sent("429-soon") == 1


@pytest.mark.anyio
@pytest.mark.parametrize("behaviour", ["429-silent", "409"])
async def test_a_refusal_that_may_pass_is_retried_and_told_in_the_end(house: House, behaviour: str) -> None:
    served = await house.ask(house.deployment(behaviour, retries=1))
    status = int(behaviour[:3])
    assert served.reply.status == status
    assert house.sent(behaviour) == 2
    assert [record.http_status for record in served.attempts] == [status, status]
    assert error_of(served)["code"] in ("rate_limit_exceeded", "code_409")


@pytest.mark.anyio
async def test_timeouts_become_504_and_refusals_502(house: House) -> None:
    with pytest.raises(UpstreamTimeout) as late:
        await house.ask(house.deployment("silence"), stream=True)
    assert (late.value.status, late.value.code) == (504, "upstream_timeout")
    gone = HttpBackend(ProviderConfig(name="gone", base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(UpstreamError) as refused:
        await house.ask(Deployment("our-gone", gone, "m", max_retries=1))
    assert refused.value.status == 502
    assert "our-gone (gone): connect_error" in refused.value.message
    assert "127.0.0.1" not in refused.value.message


@pytest.mark.anyio
async def test_all_candidates_share_one_deadline(house: House) -> None:
    started = time.perf_counter()
    with pytest.raises(UpstreamTimeout, match=r"our-500 .* our-silence \(mock\): timeout_deadline"):
        await house.ask(house.deployment("500"), house.deployment("silence"), deadline_s=0.5)
    assert 0.4 < time.perf_counter() - started < 2.0
    assert [record.status for record in house.books.closed] == ["error", "error"]
    assert [record.index for record in house.books.closed] == [0, 1]
    assert [record.id for record in house.books.closed] == [record.id for record in house.books.opened]


@pytest.mark.anyio
async def test_the_deadline_holds_behind_a_limit_of_ones_own(house: House) -> None:
    """The first call ends by itself in time, the second would not."""
    first, second = (
        dataclasses.replace(house.deployment("silence"), timeouts=Timeouts(first_token_s=9, idle_s=9, total_s=total_s))
        for total_s in (0.3, 9)
    )
    started = time.perf_counter()
    with pytest.raises(UpstreamTimeout, match=r"timeout_total; .* timeout_deadline"):
        await house.ask(first, second, deadline_s=0.8)
    assert 0.7 < time.perf_counter() - started < 3.0


@pytest.mark.anyio
@pytest.mark.parametrize(("totals", "deadline_s"), [((None,), 601), ((30.0, 20.0), 601), ((None, 1800.0), 1801)])
async def test_the_deadline_is_never_shorter_than_a_candidates_own(
    house: House, monkeypatch: pytest.MonkeyPatch, totals: tuple[float | None, ...], deadline_s: float
) -> None:
    given: list[float] = []

    def noted(seconds: float) -> TimeLimit:
        given.append(seconds)
        return TimeLimit(seconds)

    monkeypatch.setattr("gateway.upstream.attempts.TimeLimit", noted)
    limits = [None if total is None else Timeouts(first_token_s=1.0, idle_s=1.0, total_s=total) for total in totals]
    await house.ask(*(dataclasses.replace(house.deployment("ok"), timeouts=each) for each in limits))
    assert given[0] == deadline_s
