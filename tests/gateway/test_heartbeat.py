"""A stream's client hears something while nothing is to be said, and one that does not read is let go (case A13)."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.errors import ApiError, ClientClosedRequest
from gateway.heartbeat import COMMENT, PIECE_BYTES, Heartbeat
from tests.faults.misbehaving import Wire
from tests.faults.misbehaviours import ROLE, STOP, TOKEN
from tests.support.in_process import Gate, Line, chat

pytestmark = pytest.mark.anyio
HEAD = [(b"content-type", b"text/event-stream")]
START = {"type": "http.response.start", "status": 200, "headers": HEAD}


def body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


class Stuck(Line):
    """Takes the first messages and then nothing more, as a full socket does."""

    def __init__(self, takes: int) -> None:
        super().__init__()
        self.takes = takes

    async def send(self, message: dict[str, Any]) -> None:
        if self.takes == 0:
            await asyncio.Event().wait()
        self.takes -= 1
        await super().send(message)


async def test_silence_opens_the_stream_and_is_filled() -> None:
    line = Line()
    heartbeat = Heartbeat(line.send, 0.05, 5)
    heartbeat.begin(lambda: HEAD)
    assert not heartbeat.opened
    await asyncio.sleep(0.24)
    assert heartbeat.opened
    assert line.status == 200
    assert 3 <= line.body.count(COMMENT) <= 5
    before = line.body
    await heartbeat(START)  # has left already
    await heartbeat(body(b"data: 1\n\n"))
    assert line.body == before + b"data: 1\n\n"
    heartbeat.close()
    await asyncio.sleep(0.1)
    assert line.body == before + b"data: 1\n\n"


async def test_a_stream_that_speaks_is_left_alone() -> None:
    line = Line()
    heartbeat = Heartbeat(line.send, 0.2, 5)
    heartbeat.begin(lambda: HEAD)
    await heartbeat(START)
    for _ in range(8):
        await asyncio.sleep(0.05)
        await heartbeat(body(b"data: 1\n\n"))
    assert COMMENT not in line.body
    await asyncio.sleep(0.3)
    assert line.body.count(COMMENT) == 1
    heartbeat.close()


async def test_zero_keeps_quiet() -> None:
    line = Line()
    heartbeat = Heartbeat(line.send, 0, 0.05)
    heartbeat.begin(lambda: HEAD)
    await asyncio.sleep(0.15)
    assert not heartbeat.opened
    heartbeat.close()


@pytest.mark.parametrize(("interval_s", "takes"), [(0, 1), (0.02, 1), (0.02, 4)])
async def test_a_client_that_takes_nothing_is_reported(interval_s: float, takes: int) -> None:
    line, reported = Stuck(takes), asyncio.Event()
    heartbeat = Heartbeat(line.send, interval_s, 0.1)

    def on_stuck(error: ApiError) -> None:
        assert isinstance(error, ClientClosedRequest)
        reported.set()

    heartbeat.on_stuck = on_stuck
    heartbeat.begin(lambda: HEAD)

    async def talk() -> None:
        await heartbeat(START)
        while True:
            await heartbeat(body(b"data: 1\n\n"))

    talking = asyncio.create_task(talk())
    await asyncio.wait_for(reported.wait(), 5)
    talking.cancel()
    heartbeat.close()


async def test_a_long_body_goes_in_pieces_that_must_be_taken() -> None:
    whole = bytes(range(256)) * (3 * PIECE_BYTES // 256) + b"end"
    line = Line()
    await Heartbeat(line.send, 0, 5)(START)
    await Heartbeat(line.send, 0, 5)(body(whole, more=False))
    assert (line.body, line.closed) == (whole, True)
    with pytest.raises(ClientClosedRequest, match="read nothing"):
        await Heartbeat(Stuck(2).send, 0, 0.05)(body(whole, more=False))


async def test_a_streams_last_message_must_be_taken_too() -> None:
    heartbeat = Heartbeat(Stuck(1).send, 0, 0.05)
    heartbeat.begin(lambda: HEAD)
    await heartbeat(START)
    with pytest.raises(ClientClosedRequest, match="read nothing"):
        await heartbeat(body(b"data: [DONE]\n\n", more=False))


async def test_nothing_is_said_behind_the_last_message() -> None:
    line = Line()
    heartbeat = Heartbeat(line.send, 0.02, 5)
    heartbeat.begin(lambda: HEAD)
    await heartbeat(START)
    await heartbeat(body(b"data: 1\n\n", more=False))
    await asyncio.sleep(0.1)
    assert (line.body, line.closed) == (b"data: 1\n\n", True)


async def test_who_did_not_take_a_comment_is_sent_nothing_more() -> None:
    line, reported = Stuck(1), asyncio.Event()
    heartbeat = Heartbeat(line.send, 0.02, 0.1)
    heartbeat.on_stuck = lambda error: reported.set()
    heartbeat.begin(lambda: HEAD)
    await asyncio.wait_for(reported.wait(), 5)
    async with asyncio.timeout(5):
        with pytest.raises(ClientClosedRequest, match="read nothing"):
            await heartbeat(body(b"data: 1\n\n", more=False))


# Through the pipeline.


@pytest.fixture
async def pulsing(gate: Gate) -> AsyncIterator[Gate]:
    """A gate whose clients hear something every twentieth of a second."""
    gate.keepalive_s = 0.05
    yield gate
    gate.keepalive_s = 15.0


@pytest.fixture
def slow_start(gate: Gate) -> None:
    async def late(wire: Wire) -> None:
        await asyncio.sleep(0.4)
        await wire.start_events()
        for event in (ROLE, TOKEN, STOP):
            await wire.event(event)
        await asyncio.sleep(0.3)
        await wire.end()

    gate.upstream.on("late", late)


async def test_comments_stand_between_events_and_count_as_nothing(pulsing: Gate, slow_start: None) -> None:
    line = await pulsing.ask(chat("probe/late", stream=True))
    assert (line.status, line.text, line.closed) == (200, "x", True)
    assert line["content-type"].startswith("text/event-stream")
    assert line["x-request-id"] == pulsing.record.id
    for block in line.body.removesuffix(b"\n\n").split(b"\n\n"):
        assert re.fullmatch(rb"(: keep-alive|: tollhouse .*|data: .*)", block)
    before, _, after = line.body.partition(b"data: ")
    assert 4 <= before.count(COMMENT) <= 9
    assert 2 <= after.count(COMMENT) <= 8
    record = pulsing.record
    assert (record.status, record.usage.completion_tokens) == ("ok", 3)  # chunks, for there was no usage
    assert record.ttft_ms is not None
    assert record.ttft_ms > 350


async def test_behind_the_comments_attempts_go_on(gate: Gate, slow_start: None) -> None:
    gate.keepalive_s = 0.05
    try:
        line = await gate.ask(chat("hasty/silence", stream=True))
    finally:
        gate.keepalive_s = 15.0
    assert line.status == 200
    assert COMMENT in line.body
    error = json.loads(line.body.rpartition(b"data: ")[2])["error"]
    assert error["code"] == "upstream_timeout"
    assert b"[DONE]" not in line.body
    assert (gate.record.status, gate.record.http_status) == ("error", 504)


@pytest.mark.parametrize(
    ("behaviour", "says"), [("late-400", "too long"), ("late-json", ""), ("late-empty", "HTTP 404")]
)
async def test_what_comes_after_the_headers_is_told_in_the_stream(pulsing: Gate, behaviour: str, says: str) -> None:
    async def late(wire: Wire) -> None:
        await asyncio.sleep(0.3)
        match behaviour:
            case "late-400":
                await wire.json({"error": {"message": "too long", "type": "t", "param": "p", "code": "c"}}, "400 Bad")
            case "late-json":
                choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
                await wire.json(
                    {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
                )
            case "late-empty":
                await wire.json(b"", "404 Not Found")

    pulsing.upstream.on(behaviour, late)
    line = await pulsing.ask(chat(f"probe/{behaviour}", stream=True))
    assert (line.status, line.closed) == (200, True)
    if not says:
        assert line.text == "ok"
        return
    error = json.loads(line.body.rpartition(b"data: ")[2])["error"]
    assert says in error["message"]
    if behaviour == "late-400":
        assert error == {"message": "too long", "type": "t", "param": "p", "code": "c"}
    assert b"[DONE]" not in line.body
    assert (pulsing.record.status, pulsing.record.http_status) == ("error", 400 if behaviour == "late-400" else 404)


async def test_whole_answers_hear_no_heartbeat(pulsing: Gate) -> None:
    async def late(wire: Wire) -> None:
        await asyncio.sleep(0.2)
        await wire.json({"choices": [{"message": {"content": "ok"}}]})

    pulsing.upstream.on("late-whole", late)
    line = await pulsing.ask(chat("probe/late-whole"))
    assert line.json == {"choices": [{"message": {"content": "ok"}}]}


async def test_a_hit_that_is_told_as_a_stream_ends_all_talk(pulsing: Gate) -> None:
    await pulsing.ask(chat("probe/ok"))
    line = await pulsing.ask(chat("probe/ok", stream=True))
    assert line["x-tollhouse-cache"] == "hit-exact"
    told = line.body
    await asyncio.sleep(0.15)
    assert line.body == told


async def test_a_client_that_does_not_even_read_comments_frees_everything(pulsing: Gate, slow_start: None) -> None:
    pulsing.patience_s = 0.1
    try:
        async with asyncio.timeout(5):
            await pulsing.ask(chat("probe/late", stream=True), line=Stuck(1))
    finally:
        pulsing.patience_s = 30.0
    assert (pulsing.record.status, pulsing.record.http_status) == ("cancelled", 499)


async def test_a_client_that_does_not_read_frees_everything(gate: Gate) -> None:
    async def forever(wire: Wire) -> None:
        await wire.start_events()
        for _ in range(1000):
            await wire.event(TOKEN, 0.01)

    gate.upstream.on("forever", forever)
    gate.patience_s = 0.2
    try:
        await gate.ask(chat("probe/forever", stream=True), line=Stuck(5))
    finally:
        gate.patience_s = 30.0
    assert (gate.record.status, gate.record.http_status) == ("cancelled", 499)
    await gate.until(lambda: gate.upstream.of("forever")[0].hung_up_after_s is not None)
