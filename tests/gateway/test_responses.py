"""Responses beyond their request: conversations, expiry, outages, runs that several gateways see; on both databases."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from gateway.answer import Answer, StreamAnswer
from gateway.errors import ApiError, InvalidRequestError, NotFoundError, OverloadedError, RateLimitError
from gateway.ids import new_id
from gateway.responses import runs, shelf
from gateway.responses.responses import Responses
from gateway.responses.run import Run
from gateway.responses.runs import OnAdmitted, Serve
from gateway.responses.types import StoredResponse
from gateway.store.database import Database
from gateway.wire.responses_api.request import Creation, parse_create
from gateway.wire.responses_api.voice import ResponsesVoice
from tests.faults.misbehaviours import chunk, completion

pytestmark = pytest.mark.anyio

DAYS = 30.0
ENOUGH = 1_000_000  # bytes


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def database(database_url: str, stack: AsyncExitStack) -> Database:
    return await open_database(database_url, stack)


@pytest.fixture
async def room(database: Database, stack: AsyncExitStack) -> Responses:
    return await Responses.open(database, stack)


async def open_database(url: str, stack: AsyncExitStack) -> Database:
    database = Database(url)
    stack.push_async_callback(database.aclose)
    await database.open()
    return database


def asked(input: Any, **fields: Any) -> Creation:
    return parse_create(json.dumps({"model": "m", "input": input} | fields).encode(), f"resp_{new_id()}")


async def answered(
    room: Responses, input: Any, output: str, *, tenant: str = "t1", ttl_days: float = DAYS, **fields: Any
) -> StoredResponse:
    """A turn of a conversation, stored."""
    creation = asked(input, **fields)
    voice = ResponsesVoice(creation)
    voice.whole(json.dumps(completion(output)).encode())
    stored = room.record(tenant, creation, voice.response, ttl_days)
    _, turns = await room.history.conversation(tenant, creation, ENOUGH)
    await room.shelf.keep(stored, turns)
    return stored


async def said(room: Responses, creation: Creation, tenant: str = "t1", max_bytes: int = ENOUGH) -> list[str]:
    items, _ = await room.history.conversation(tenant, creation, max_bytes)
    return [item["content"][0]["text"] for item in items]


async def num_rows(database: Database) -> int:
    async with database.read() as connection:
        return int(await connection.scalar(text("SELECT COUNT(*) FROM responses")) or 0)


# Conversations


async def test_a_conversation_is_told_from_its_beginning(room: Responses) -> None:
    first = await answered(room, "a", "A")
    second = await answered(room, "b", "B", previous_response_id=first.id)
    await answered(room, "elsewhere", "X", previous_response_id=first.id)
    assert await said(room, asked("c", previous_response_id=second.id)) == ["a", "A", "b", "B", "c"]


async def test_it_belongs_to_its_tenant(room: Responses) -> None:
    stored = await answered(room, "a", "A")
    with pytest.raises(InvalidRequestError) as caught:
        await said(room, asked("b", previous_response_id=stored.id), tenant="t2")
    assert caught.value.code == "previous_response_not_found"
    with pytest.raises(NotFoundError):
        await room.find("t2", stored.id)
    with pytest.raises(NotFoundError):
        await room.remove("t2", stored.id)
    assert (await room.find("t1", stored.id)).response["output"][0]["content"][0]["text"] == "A"


async def test_a_conversation_that_lost_its_beginning_is_refused(room: Responses) -> None:
    first = await answered(room, "a", "A")
    second = await answered(room, "b", "B", previous_response_id=first.id)
    await room.remove("t1", first.id)
    with pytest.raises(InvalidRequestError, match=first.id):
        await said(room, asked("c", previous_response_id=second.id))


async def test_a_conversation_may_not_outgrow_the_memory(room: Responses) -> None:
    stored = await answered(room, "a" * 1_000, "A")
    with pytest.raises(InvalidRequestError, match="longer than 900 bytes"):
        await said(room, asked("b", previous_response_id=stored.id), max_bytes=900)


async def test_many_references_to_one_item_may_not_outgrow_it_either(room: Responses) -> None:
    """A few bytes each, and each stands for the whole item."""
    stored = await answered(room, "a" * 10_000, "A")
    reference = {"type": "item_reference", "id": stored.items[0]["id"]}
    assert len(await said(room, asked([reference] * 50))) == 50
    with pytest.raises(InvalidRequestError, match="references refer to is longer than 1000000 bytes"):
        await said(room, asked([reference] * 100))
    with pytest.raises(InvalidRequestError, match="longer than 900 bytes"):
        await said(room, asked([{"type": "item_reference", "id": stored.response["output"][0]["id"]}]), max_bytes=900)


async def test_a_call_that_was_cut_off_is_not_told_again(room: Responses) -> None:
    creation = asked("a")
    voice = ResponsesVoice(creation)
    call = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"half'}}
    for payload in (chunk({"tool_calls": [call]}), chunk({}, "length")):
        voice.events([json.dumps(payload).encode()])
    voice.end()
    await room.shelf.keep(room.record("t1", creation, voice.response, DAYS))
    assert await said(room, asked("b", previous_response_id=creation.response_id)) == ["a", "b"]


async def test_texts_that_databases_find_hard(room: Responses) -> None:
    hard = "NUL \0, quote ', emoji 🙂, \ud7ff"
    stored = await answered(room, hard, hard)
    assert await said(room, asked("b", previous_response_id=stored.id)) == [hard, hard, "b"]


# The end of what is kept


async def test_what_has_expired_is_gone_at_once_and_taken_out_in_batches(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "EXPIRED_AT_A_TIME", 2)
    room = Responses(database)  # whose own sweeps have not begun
    old = [await answered(room, "a", "A", ttl_days=-1.0) for _ in range(5)]
    kept = await answered(room, "a", "A")
    with pytest.raises(NotFoundError):
        await room.find("t1", old[0].id)
    with pytest.raises(InvalidRequestError):
        await said(room, asked("b", previous_response_id=old[0].id))
    assert await room.shelf.sweep() == 5
    assert await num_rows(database) == 1
    assert (await room.find("t1", kept.id)).status == "completed"


async def test_a_conversation_that_goes_on_does_not_lose_its_beginning(room: Responses) -> None:
    first = await answered(room, "a", "A", ttl_days=0.5)
    await answered(room, "b", "B", previous_response_id=first.id)
    assert (await room.find("t1", first.id)).expires_at > datetime.now(UTC) + timedelta(days=DAYS - 1)


async def test_what_is_deleted_is_gone(room: Responses, database: Database) -> None:
    stored = await answered(room, "a", "A")
    await room.remove("t1", stored.id)
    with pytest.raises(NotFoundError):
        await room.remove("t1", stored.id)
    assert await num_rows(database) == 0


# While the database is away


async def test_an_outage_loses_nothing_that_memory_can_hold(
    postgres_server: Any, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database = await open_database(postgres_server.new_database(), stack)
    room = await Responses.open(database, stack)
    postgres_server.stop()
    stored = await answered(room, "a", "A")
    assert (await room.find("t1", stored.id)).response["status"] == "completed"
    with pytest.raises(NotFoundError):
        await room.find("t2", stored.id)
    run = Started(room)
    with pytest.raises(OverloadedError):
        await run.begin()  # nobody could ask for it later
    monkeypatch.setattr(shelf, "MAX_WAITING_BYTES", 10)
    with caplog.at_level(logging.ERROR):
        lost = await answered(room, "a", "A")
    assert f"{lost.id} is lost" in caplog.text
    postgres_server.start()
    await until(lambda: not room.shelf._waiting)
    assert await num_rows(database) == 1
    assert (await room.find("t1", stored.id)).id == stored.id


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


# In the background


class Script:
    """A chat stream that says a word and then waits until it is told to end."""

    def __init__(self, voice: ResponsesVoice) -> None:
        self.voice = voice
        self.go_on = asyncio.Event()
        self.spoke = asyncio.Event()
        self.closed = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        yield self.voice.events([json.dumps(chunk({"content": "x"})).encode()])
        self.spoke.set()
        await self.go_on.wait()
        yield self.voice.end()

    def broken(self, error: ApiError) -> bytes:
        return self.voice.broken(error)

    async def close(self) -> None:
        self.closed = True


class Started:
    def __init__(self, room: Responses, *, stream: bool = True) -> None:
        self.room = room
        creation = asked("a", background=True, stream=stream)
        self.voice = ResponsesVoice(creation)
        self.script = Script(self.voice)
        self.run = Run(room.record("t1", creation, self.voice.response, DAYS), self.voice, streams=stream)
        self.id = creation.response_id

    async def begin(self, serve: Serve | None = None) -> Answer | None:
        return await self.room.runs.begin(self.run, (), serve or self._serve)

    async def _serve(self, on_admitted: OnAdmitted) -> StreamAnswer:
        await on_admitted()
        return StreamAnswer(self.script, [])


async def started(room: Responses) -> Started:
    found = Started(room)
    assert await found.begin() is None
    await found.script.spoke.wait()
    return found


@pytest.fixture
async def elsewhere(database_url: str, room: Responses, stack: AsyncExitStack) -> Responses:
    """Another gateway on the same database."""
    return await Responses.open(await open_database(database_url, stack), stack)


async def test_a_run_is_seen_everywhere_and_ends_by_itself(room: Responses, elsewhere: Responses) -> None:
    run = await started(room)
    assert (await room.find("t1", run.id)).response["output"][0]["content"][0]["text"] == "x"
    assert (await elsewhere.find("t1", run.id)).status == "queued"
    await room.runs.renew()
    assert (await elsewhere.find("t1", run.id)).status == "in_progress"
    run.script.go_on.set()
    assert run.run.task is not None
    await run.run.task
    assert (await elsewhere.find("t1", run.id)).response["output"][0]["content"][0]["text"] == "x"
    assert run.script.closed
    await elsewhere.remove("t1", run.id)
    with pytest.raises(NotFoundError):
        await room.find("t1", run.id)


async def test_what_can_be_heard_later_is_bounded(room: Responses, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = [await started(room) for _ in range(3)]
    monkeypatch.setattr(runs, "MAX_LINGERING_BYTES", 5 * ended[0].run.num_bytes)  # the end of one is as long again
    for each in ended:
        each.script.go_on.set()
        await until(lambda run=each.run: run.over)  # type: ignore[misc]
        await asyncio.sleep(0)
    assert [room.runs.get("t1", each.id) is not None for each in ended] == [False, True, True]
    assert (await room.find("t1", ended[0].id)).status == "completed"


async def test_a_cancellation_whose_client_leaves_is_stored_all_the_same(
    room: Responses, elsewhere: Responses, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, keep, storing, stored = await started(room), room.shelf.keep, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any) -> None:
        storing.set()
        await stored.wait()
        await keep(*args)

    monkeypatch.setattr(room.shelf, "keep", slow)
    cancelling = asyncio.create_task(room.cancel("t1", run.id))
    await storing.wait()
    cancelling.cancel()
    await asyncio.wait({cancelling})
    stored.set()
    await until(lambda: run.run.over)
    assert (await elsewhere.find("t1", run.id)).status == "cancelled"


async def test_a_run_is_cancelled_from_elsewhere(room: Responses, elsewhere: Responses) -> None:
    run = await started(room)
    assert (await elsewhere.cancel("t1", run.id)).status == "cancelled"
    await room.runs.renew()
    await until(lambda: run.run.over)
    assert run.script.closed
    assert (await room.find("t1", run.id)).status == "cancelled"
    assert (await elsewhere.find("t1", run.id)).status == "cancelled"


async def test_a_run_that_is_deleted_elsewhere_ends_and_stays_away(
    room: Responses, elsewhere: Responses, database: Database
) -> None:
    run = await started(room)
    await elsewhere.remove("t1", run.id)
    await room.runs.renew()
    await until(lambda: run.run.over)
    assert await num_rows(database) == 0


async def test_a_run_whose_gateway_is_gone_has_failed(
    room: Responses, elsewhere: Responses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LEASE_S", 0.0)  # and never renewed
    run = await started(room)
    found = await elsewhere.find("t1", run.id)
    assert found.status == "failed"
    assert "was stopped" in found.response["error"]["message"]
    assert (await elsewhere.cancel("t1", run.id)).status == "failed"


async def test_a_gateway_that_stops_says_so(database_url: str, elsewhere: Responses) -> None:
    async with AsyncExitStack() as own:
        run = await started(await Responses.open(await open_database(database_url, own), own))
        listener = asyncio.create_task(_everything(run.run))
    found = await elsewhere.find("t1", run.id)
    assert (found.status, found.response["output"][0]["status"]) == ("failed", "incomplete")
    assert "was stopped" in found.response["error"]["message"]
    assert (await listener).rstrip().split(b"event: ")[-1].startswith(b"response.failed")


async def _everything(run: Run) -> bytes:
    return b"".join([piece async for piece in run.follow()])


async def test_what_the_gate_refuses_leaves_no_row(room: Responses, database: Database) -> None:
    async def refuses(on_admitted: OnAdmitted) -> Answer:
        raise RateLimitError("slow down")

    with pytest.raises(RateLimitError):
        await Started(room).begin(refuses)
    assert await num_rows(database) == 0


async def test_what_fails_inside_fails_the_response_alone(room: Responses, caplog: pytest.LogCaptureFixture) -> None:
    async def trips(on_admitted: OnAdmitted) -> Answer:
        await on_admitted()
        raise KeyError("a bug")

    run = Started(room, stream=False)
    assert await run.begin(trips) is None
    await until(lambda: run.run.over)
    assert (await room.find("t1", run.id)).response["error"] == {
        "code": "server_error",
        "message": "The gateway failed in mid-answer.",
    }
    assert "a bug" in caplog.text
