"""How many may be inside, and how they are made to leave."""

import asyncio
from functools import partial
from typing import Any

import pytest

from gateway.counting import count_tokens
from gateway.departure import Departure
from gateway.doors import Doors
from gateway.errors import OverloadedError
from gateway.tokens import detokenize, tokenize
from gateway.wire.messages.dialect import MessagesDialect
from tests.faults.misbehaving import Wire
from tests.faults.misbehaviours import ROLE, STOP, TOKEN
from tests.support.in_process import Gate, Line, chat

pytestmark = pytest.mark.anyio


async def nobody_leaves() -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/v1/messages/count_tokens"])
async def test_closed_they_refuse_whoever_asks_a_model_for_its_tokens(running: Gate, path: str) -> None:
    house = running.house
    serve = {
        "/tokenize": partial(tokenize, house),
        "/detokenize": partial(detokenize, house),
        "/v1/messages/count_tokens": partial(count_tokens, house, MessagesDialect(counting=True)),
    }[path]
    house.doors.close()
    with pytest.raises(OverloadedError) as refused:
        await serve(b"{}", lambda name: None)
    assert (refused.value.code, refused.value.headers["retry-after"]) == ("shutting_down", "1")


async def test_they_are_empty_once_the_last_one_left() -> None:
    doors, finish = Doors(), asyncio.Event()

    async def visit() -> None:
        with Departure(nobody_leaves, doors):
            await finish.wait()

    visits = [asyncio.create_task(visit()) for _ in range(3)]
    await asyncio.sleep(0)
    assert doors.num_inside == 3
    doors.close()
    assert not await doors.emptied(0.02)
    finish.set()
    assert await doors.emptied(5)
    await asyncio.gather(*visits)
    assert doors.num_inside == 0


async def test_who_comes_right_back_is_waited_for() -> None:
    """As a stream does between the wait for its first token and its relay."""
    doors, answer, finish = Doors(), asyncio.Event(), asyncio.Event()

    async def visit() -> None:
        with Departure(nobody_leaves, doors):
            await answer.wait()
        with Departure(nobody_leaves, doors):
            await finish.wait()

    visiting = asyncio.create_task(visit())
    await asyncio.sleep(0)
    doors.close()
    emptied = asyncio.create_task(doors.emptied(5))
    await asyncio.sleep(0)
    answer.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not emptied.done()
    assert doors.num_inside == 1
    finish.set()
    assert await emptied
    await visiting


async def test_who_is_cleared_out_gets_a_reason() -> None:
    doors = Doors()

    async def visit() -> None:
        with Departure(nobody_leaves, doors):
            await asyncio.sleep(30)

    task = asyncio.create_task(visit())
    await asyncio.sleep(0)
    assert doors.clear() == 1
    with pytest.raises(OverloadedError) as told:
        await task
    assert (told.value.code, told.value.headers["connection"]) == ("shutting_down", "close")
    assert doors.num_inside == 0


# Through the pipeline.


@pytest.fixture
def running(fresh_gate: Gate) -> Gate:
    async def forever(wire: Wire) -> None:
        await wire.start_events()
        for _ in range(1000):
            await wire.event(TOKEN, 0.02)

    fresh_gate.upstream.on("forever", forever)
    return fresh_gate


async def begun(gate: Gate, line: Line, model: str, stream: bool) -> "asyncio.Task[Line]":
    task = asyncio.create_task(gate.ask(chat(model, stream=stream), line=line))
    name = model.partition("/")[2]
    await gate.until(lambda: gate.num_sent(name) == 1)
    if stream:
        async with asyncio.timeout(5):
            while b"data: " not in line.body:
                await asyncio.sleep(0.01)
    return task


async def test_a_full_house_lets_nobody_in(running: Gate) -> None:
    running.house.doors._max_inside = 1
    first = Line()
    task = await begun(running, first, "probe/forever", stream=True)
    refused = await running.ask(chat())
    assert (refused.status, refused.error["code"], refused["retry-after"]) == (503, "overloaded", "1")
    first.leave()
    await task
    assert (await running.ask(chat())).status == 200


async def test_a_stream_without_its_first_token_is_waited_for(running: Gate) -> None:
    async def on_command(wire: Wire) -> None:
        await wire.start_events()
        await wire.event(ROLE)
        while not running.house.doors.closed:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        for event in (TOKEN, STOP):
            await wire.event(event, 0.05)
        await wire.end()

    running.upstream.on("on-command", on_command)
    asking = asyncio.create_task(running.ask(chat("probe/on-command", stream=True)))
    await running.until(lambda: running.num_sent("on-command") == 1)
    running.house.doors.close()
    assert await running.house.doors.emptied(5)
    assert running.house.doors.num_inside == 0
    assert (await asking).text == "x"
    assert running.record.status == "ok"


async def test_a_draining_house_lets_nobody_in_and_finishes_what_runs(running: Gate) -> None:
    first = Line()
    task = await begun(running, first, "probe/paced", stream=True)
    running.house.doors.close()
    assert running.house.status == "draining"
    refused = await running.ask(chat())
    assert (refused.status, refused.error["code"]) == (503, "shutting_down")
    assert (refused["retry-after"], refused["connection"]) == ("1", "close")
    assert await running.house.doors.emptied(5)
    await task
    assert first.text == "01234567"
    assert [record.status for record in running.records] == ["ok"]


@pytest.mark.parametrize(("model", "stream"), [("probe/forever", True), ("probe/silence", False)])
async def test_what_outlives_the_grace_is_cut_told_and_booked(running: Gate, model: str, stream: bool) -> None:
    line = Line()
    task = await begun(running, line, model, stream)
    running.house.doors.close()
    assert running.house.doors.clear() == 1
    await task
    if stream:
        assert line.status == 200
        assert b'"shutting_down"' in line.body.rpartition(b"data: ")[2]
        assert b"[DONE]" not in line.body
    else:
        assert (line.status, line.error["code"]) == (503, "shutting_down")
    record = running.record
    assert (record.status, record.http_status, record.error_code) == ("error", 503, "shutting_down")
    assert record.usage.prompt_tokens > 0  # it may well have run
    name = model.partition("/")[2]
    await running.until(lambda: running.upstream.of(name)[0].hung_up_after_s is not None)
