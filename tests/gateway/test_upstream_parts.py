"""The small parts of the upstream room: breaker, timer, encodings, verdicts, the first token."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.breaker import MAX_COOL_DOWN_S, Breaker
from gateway.upstream.encoding import Inflater
from gateway.upstream.first_token import is_prelude
from gateway.upstream.types import Reply
from gateway.upstream.verdict import judge, retry_after
from gateway.upstream.waiting import Limit, Waiting


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_breaker_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(max_failures=3, cool_down_s=10, clock=Clock())
    for _ in range(2):
        breaker.failure()
    breaker.success()
    for _ in range(2):
        breaker.failure()
    assert breaker.allow()
    breaker.failure()
    assert breaker.is_open
    assert not breaker.allow()


def test_after_the_cool_down_one_probe_may_pass() -> None:
    clock = Clock()
    breaker = Breaker(max_failures=1, cool_down_s=10, clock=clock)
    breaker.failure()
    clock.now = 10.0
    assert breaker.allow()
    assert not breaker.allow()
    breaker.success()
    assert breaker.allow()
    assert breaker.allow()


def test_a_failed_probe_doubles_the_cool_down_up_to_a_limit() -> None:
    clock = Clock()
    breaker = Breaker(max_failures=1, cool_down_s=10, clock=clock)
    breaker.failure()
    waits = []
    for _ in range(6):
        waits.append(breaker.open_until - clock.now)
        clock.now = breaker.open_until
        assert breaker.allow()
        breaker.failure()
    assert waits == [10, 20, 40, 80, MAX_COOL_DOWN_S, MAX_COOL_DOWN_S]


def test_requests_under_way_do_not_prolong_the_cool_down() -> None:
    breaker = Breaker(max_failures=2, cool_down_s=10, clock=Clock())
    for _ in range(50):
        breaker.failure()
    assert breaker.open_until == 10


def test_a_probe_without_outcome_makes_room_for_another() -> None:
    clock = Clock()
    breaker = Breaker(max_failures=1, cool_down_s=10, clock=clock)
    breaker.failure()
    clock.now = 10.0
    assert breaker.allow()
    breaker.abandon()
    assert breaker.allow()


def test_a_rest_is_granted_within_reason() -> None:
    breaker = Breaker(clock=Clock())
    breaker.rest(31_536_000)
    assert breaker.open_until == MAX_COOL_DOWN_S


def now() -> float:
    return asyncio.get_running_loop().time()


async def wake_later(waiting: Waiting, seconds: float) -> None:
    await asyncio.sleep(seconds)
    waiting.wake()


@pytest.mark.anyio
async def test_a_wait_ends_when_it_is_woken_or_at_its_end() -> None:
    waiting = Waiting()
    for _ in range(5):
        task = asyncio.create_task(wake_later(waiting, 0.1))
        await waiting.wait(now() + 0.4)
        await task
    started = now()
    with pytest.raises(TimeoutError):
        await waiting.wait(started + 0.05)
    assert 0.04 < now() - started < 0.3
    waiting.end()


@pytest.mark.anyio
async def test_an_end_that_lies_earlier_than_the_last_one_holds() -> None:
    waiting = Waiting()
    task = asyncio.create_task(wake_later(waiting, 0.01))
    await waiting.wait(now() + 3600)
    await task
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting.wait(now() + 0.05), 10)
    waiting.end()


@pytest.mark.anyio
async def test_time_spent_elsewhere_does_not_count_as_waiting() -> None:
    waiting = Waiting()
    for _ in range(2):
        task = asyncio.create_task(wake_later(waiting, 0))
        await waiting.wait(now() + 0.3)
        await task
        await asyncio.sleep(0.4)  # a slow client
    waiting.end()


@pytest.mark.anyio
async def test_somebody_elses_cancellation_stays_one() -> None:
    waiting = Waiting()
    task = asyncio.create_task(waiting.wait(now() + 1))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    waiting.end()


def test_the_limit_that_ends_first_is_the_one_told() -> None:
    assert min(Limit(7.0, "total", 5), Limit(6.5, "idle", 60)).phase == "idle"


ENCODERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw": lambda data: zlib.compress(data, wbits=-15),
}


@given(st.binary(max_size=2000), st.sampled_from(sorted(ENCODERS)), st.integers(1, 50))
def test_any_split_of_a_compressed_body_is_inflated(data: bytes, encoder: str, step: int) -> None:
    packed = ENCODERS[encoder](data)
    inflater = Inflater("gzip" if encoder == "gzip" else "deflate")
    step = max(step, 3) if encoder == "raw" else step  # the wrapper's two bytes tell
    got = b"".join(inflater.feed(packed[start : start + step], 10_000) for start in range(0, len(packed), step))
    assert got == data
    assert inflater.finished


def test_a_bomb_is_not_inflated() -> None:
    with pytest.raises(httpx.DecodingError, match="more than 1000 bytes"):
        Inflater("gzip").feed(gzip.compress(b"0" * 10_000_000), 1000)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "١٢"}, 12.0),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


@given(st.text(max_size=20))
def test_retry_after_never_breaks(value: str) -> None:
    seconds = retry_after({"retry-after": value})
    assert seconds is None or seconds >= 0


def test_an_error_in_a_text_is_no_error() -> None:
    body = {"choices": [{"message": {"content": 'say {"error": 1}'}}], "error": None}
    assert judge(Reply(200, body=json.dumps(body).encode()), []) is None
    failed = judge(Reply(200, body=b'{"error": {"message": "x"}}'), [])
    assert failed is not None
    assert failed.code == "error_in_answer"


def test_an_error_behind_a_streams_opening_is_one() -> None:
    async def no_more() -> AsyncIterator[list[bytes]]:
        return
        yield []

    role = b'{"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}],"error":null}'
    reply = Reply(200, events=no_more())
    assert judge(reply, [role, b'{"choices":[{"index":0,"delta":{"content":"x"}}]}', b"[DONE]"]) is None
    failed = judge(reply, [role, b'{"error":{"message":"no GPU left"}}'])
    assert failed is not None
    assert failed.code == "error_in_answer"


@pytest.mark.parametrize(
    ("delta", "prelude"),
    [
        ('{"role":"assistant","content":""}', True),
        ('{"role":"assistant","content":null,"refusal":null}', True),
        ("{}", True),
        ('{"content":"x"}', False),
        ('{"reasoning_content":"x"}', False),
        ('{"role":"assistant","tool_calls":[{"index":0}]}', False),
    ],
)
def test_a_role_is_no_token(delta: str, prelude: bool) -> None:
    assert is_prelude(b'{"choices":[{"index":0,"delta":%b,"finish_reason":null}]}' % delta.encode()) is prelude


@pytest.mark.parametrize(
    "payload",
    [b"[DONE]", b"{}", b'{"choices":[],"usage":{}}', b'{"choices":[{"delta":{},"finish_reason":"stop"}]}',
     b'{"choices":[{"index":0,"text":"x"}]}', b'{"choices":"odd"}', b'{"error":{"code":1},"choices":[{"delta":{}}]}'],
)  # fmt: skip
def test_all_else_is_for_the_client(payload: bytes) -> None:
    assert not is_prelude(payload)
