"""Retries, fallback and the breaker, over real connections to an upstream that misbehaves."""

import asyncio
import dataclasses
import json
import logging
import statistics
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.config import ProviderConfig
from gateway.errors import (
    ApiError,
    ContextLengthExceeded,
    InvalidRequestError,
    OverloadedError,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.ledger.records import AttemptRecord
from gateway.time_limit import TimeLimit
from gateway.upstream.attempts import Deployment, Fleet, Served, run
from gateway.upstream.breaker import Breaker
from gateway.upstream.http_backend import HttpBackend
from gateway.upstream.types import Outbound, Reply
from gateway.wire.chat import parse_chat
from gateway.wire.usage import Usage
from tests.faults.misbehaving import MisbehavingUpstream, misbehaving_upstream  # noqa: F401

KEY = "sk-provider-secret"


class Books:
    """Keeps what the observer is told, in order."""

    def __init__(self) -> None:
        self.opened: list[AttemptRecord] = []
        self.closed: list[AttemptRecord] = []

    def attempt_opened(self, record: AttemptRecord) -> None:
        self.opened.append(record)

    def attempt_closed(self, record: AttemptRecord) -> None:
        assert record.id in {opened.id for opened in self.opened}
        assert record.id not in {closed.id for closed in self.closed}
        self.closed.append(record)


class House:
    """One provider, and a request against any list of its models."""

    def __init__(self, upstream: MisbehavingUpstream, backend: HttpBackend) -> None:
        self.upstream = upstream
        self.backend = backend
        self.books = Books()

    def deployment(self, behaviour: str, retries: int = 0, breaker: Breaker | None = None) -> Deployment:
        return Deployment(f"our-{behaviour}", self.backend, behaviour, breaker or Breaker(), retries)

    async def ask(self, *candidates: Deployment | Fleet, stream: bool = False, **options: Any) -> Served:
        body = {"model": "ours", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
        inference = parse_chat(json.dumps(body).encode())

        def outbound_for(deployment: Deployment) -> Outbound:
            return Outbound(request_id="r1", inference=inference, upstream_model=deployment.upstream_model)

        fleets = [each if isinstance(each, Fleet) else Fleet([each]) for each in candidates]
        return await run(fleets, outbound_for, self.books, stream=stream, **options)

    def sent(self, behaviour: str) -> int:
        return len(self.upstream.of(behaviour))


@pytest.fixture
async def house(
    anyio_backend: Any,
    misbehaving_upstream: MisbehavingUpstream,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[House]:
    monkeypatch.setenv("MOCK_KEY", KEY)
    limits = {"connect_timeout_s": 1.0, "first_token_timeout_s": 0.4, "idle_timeout_s": 0.3, "total_timeout_s": 3.0}
    provider = ProviderConfig(name="mock", base_url=misbehaving_upstream.base_url, api_key_env="MOCK_KEY", **limits)
    backend = HttpBackend(provider)
    yield House(misbehaving_upstream, backend)
    await backend.aclose()


def error_of(served: Served) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(served.reply.body or b"")["error"]
    return error


@pytest.mark.anyio
async def test_a_plain_success_is_one_closed_attempt(house: House) -> None:
    served = await house.ask(house.deployment("ok"), house.deployment("500"))
    assert served.reply.status == 200
    assert served.attempts == tuple(house.books.closed) == (served.record,)
    record = served.record
    assert (record.status, record.http_status, record.error_code) == ("ok", 200, None)
    assert (record.model, record.provider, record.upstream_model, record.index) == ("our-ok", "mock", "ok", 0)
    assert record.usage == Usage(prompt_tokens=11, completion_tokens=7)
    assert record.latency_ms > 0
    assert house.books.opened[0].id == record.id
    assert house.sent("500") == 0


@pytest.mark.anyio
async def test_a_stream_is_served_at_its_first_token_and_left_open(house: House) -> None:
    served = await house.ask(house.deployment("paced"), stream=True)
    assert served.is_stream
    assert b'"content": "0"' in served.first_events[-1]
    assert served.record.ttft_ms is not None
    assert house.books.closed == []
    assert served.reply.events is not None
    rest = [payload async for payloads in served.reply.events for payload in payloads]
    assert rest[-1] == b"[DONE]"
    record = served.finish(usage=Usage(completion_tokens=8))
    assert (record.status, record.usage.completion_tokens, record.id) == ("ok", 8, house.books.opened[0].id)
    assert record.latency_ms > 700
    assert served.attempts == (record,)
    await served.reply.aclose()


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
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "behaviour",
    ["500", "503", "429", "reset", "garbage", "half-body", "redirect", "error-in-200", "not-json", "half-json", "html",
     "nothing", "no-choices",
     "no-content", "brotli", "401", "403"],
)  # fmt: skip
async def test_whatever_breaks_before_the_first_byte_falls_back(house: House, behaviour: str, stream: bool) -> None:
    served = await house.ask(house.deployment(behaviour), house.deployment("ok"), stream=stream)
    assert served.reply.status == 200
    assert served.deployment.model == "our-ok"
    assert [record.status for record in served.attempts] == ["error", "ok"]
    assert house.sent(behaviour) == 1
    await served.reply.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ("cut-before-token", "protocol_error"),
        ("empty-stream", "protocol_error"),
        ("error-first", "error_in_answer"),
        ("error-second", "error_in_answer"),
        ("silent-stream", "timeout_first_token"),
        ("silence", "timeout_first_token"),
    ],
)
async def test_a_stream_that_dies_before_its_first_token_falls_back(house: House, behaviour: str, code: str) -> None:
    started = time.perf_counter()
    served = await house.ask(house.deployment(behaviour), house.deployment("ok"), stream=True)
    assert time.perf_counter() - started < 2.0  # a late first token costs its limit and no more
    assert served.deployment.model == "our-ok"
    assert house.books.closed[0].error_code == code
    await served.reply.aclose()
    if behaviour.startswith("silen"):
        assert await asyncio.to_thread(
            house.upstream.wait_until, lambda: house.upstream.of(behaviour)[0].hung_up_after_s is not None, 1.0
        )


@pytest.mark.anyio
async def test_a_stream_that_dies_later_is_the_relays_business(house: House) -> None:
    breaker = Breaker(max_failures=1)
    served = await house.ask(house.deployment("cut", breaker=breaker), house.deployment("ok"), stream=True)
    assert served.deployment.model == "our-cut"
    assert house.sent("ok") == 0
    assert not breaker.is_open
    served.finish("error", error_code="protocol_error")
    assert breaker.is_open
    await served.reply.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_the_clients_own_faults_pass_at_once(house: House, status: int) -> None:
    served = await house.ask(house.deployment(str(status), retries=3), house.deployment("ok"))
    assert served.reply.status == status
    assert error_of(served)["param"] == "messages"
    assert error_of(served)["code"] == f"code_{status}"
    assert house.sent(str(status)) == 1
    assert house.sent("ok") == 0
    assert (served.record.status, served.record.http_status) == ("error", status)
    assert house.books.closed == [served.record]


@pytest.mark.anyio
async def test_our_bad_credential_is_not_the_clients_business(house: House) -> None:
    with pytest.raises(UpstreamError) as raised:
        await house.ask(house.deployment("401", retries=2), house.deployment("403"))
    assert house.sent("401") == house.sent("403") == 1
    assert raised.value.status == 502
    assert b"sk-" not in raised.value.encode()


@pytest.mark.anyio
@pytest.mark.parametrize("behaviour", ["429", "429-date", "429-absurd", "503-busy"])
async def test_a_long_wait_is_the_clients_to_make(house: House, behaviour: str) -> None:
    """No retry before Retry-After; the last candidate's answer passes as it came."""
    started = time.perf_counter()
    served = await house.ask(house.deployment(behaviour, retries=3))
    assert time.perf_counter() - started < 1.0
    assert house.sent(behaviour) == 1
    assert served.reply.status == int(behaviour[:3])
    assert "retry-after" in dict(served.reply.headers)
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
@pytest.mark.parametrize(("totals", "deadline_s"), [((None,), 601), ((30.0, 20.0), 601), ((None, 1800.0), 1801)])
async def test_the_deadline_is_never_shorter_than_a_candidates_own(
    house: House, monkeypatch: pytest.MonkeyPatch, totals: tuple[float | None, ...], deadline_s: float
) -> None:
    given: list[float] = []

    def noted(seconds: float) -> TimeLimit:
        given.append(seconds)
        return TimeLimit(seconds)

    monkeypatch.setattr("gateway.upstream.attempts.TimeLimit", noted)
    await house.ask(*(dataclasses.replace(house.deployment("ok"), total_timeout_s=total) for total in totals))
    assert given[0] == deadline_s


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
async def test_cancelling_hangs_up_and_closes_the_attempt(house: House) -> None:
    task = asyncio.create_task(house.ask(house.deployment("slow"), house.deployment("ok")))
    assert await asyncio.to_thread(house.upstream.wait_until, lambda: house.sent("slow") == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(
        house.upstream.wait_until, lambda: house.upstream.of("slow")[0].hung_up_after_s is not None, 1.0
    )
    assert [(record.status, record.error_code) for record in house.books.closed] == [("cancelled", "cancelled")]
    assert house.sent("ok") == 0


class Local:
    """A backend of our own that refuses, or breaks by a bug."""

    name = "local"

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    async def send(self, outbound: Outbound) -> Reply:
        raise self._error()

    async def aclose(self) -> None: ...


@pytest.mark.anyio
async def test_what_one_backend_can_not_serve_another_may(house: House) -> None:
    small = Deployment("small", Local(lambda: ContextLengthExceeded("too long", param="messages")), "small")
    assert (await house.ask(small, house.deployment("ok"))).deployment.model == "our-ok"
    with pytest.raises(ContextLengthExceeded) as raised:
        await house.ask(small)
    assert isinstance(raised.value, ApiError)
    assert raised.value.param == "messages"
    assert house.books.closed[-1].error_code == "context_length_exceeded"
    assert not small.breaker.is_open


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "severity"), [(InvalidRequestError("no", param="n"), "INFO"), (OverloadedError("full"), "WARNING")]
)
async def test_only_what_is_not_the_clients_own_mistake_is_worth_a_warning(
    house: House, caplog: pytest.LogCaptureFixture, error: ApiError, severity: str
) -> None:
    caplog.set_level(logging.INFO, "tollhouse.upstream")
    with pytest.raises(type(error)):
        await house.ask(Deployment("small", Local(lambda: error), "small"))
    assert [record.levelname for record in caplog.records] == [severity]


@pytest.mark.anyio
async def test_a_bug_is_not_hidden_by_a_fallback(house: House) -> None:
    broken = Deployment("broken", Local(lambda: ZeroDivisionError("oops")), "broken")
    with pytest.raises(ZeroDivisionError):
        await house.ask(broken, house.deployment("ok"))
    assert [record.error_code for record in house.books.closed] == ["internal_error"]


@pytest.mark.anyio
async def test_no_health_check_spends_money(house: House) -> None:
    """Health is learned from the traffic itself: an idle house sends nothing."""
    await house.ask(house.deployment("ok"))
    before = len(house.upstream.received)
    await asyncio.sleep(1.0)
    assert len(house.upstream.received) == before
