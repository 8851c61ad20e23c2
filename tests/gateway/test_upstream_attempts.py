"""Attempts and fallback, over real connections to an upstream that misbehaves."""

import asyncio
import time

import pytest

from gateway.upstream.breaker import Breaker
from gateway.wire.usage import Usage
from tests.support.attempts import House


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
