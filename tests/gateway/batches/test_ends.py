"""A batch that is cancelled, expires, or loses its worker, its key or its database."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from gateway.batches import asking
from gateway.batches.capacity import IdleCapacity
from gateway.batches.run import Run
from gateway.batches.types import LeaseLost, Result
from gateway.batches.worker import Worker
from gateway.doors import Doors
from gateway.errors import InvalidRequestError
from gateway.store.batches import claim_batch, insert_batch, insert_result
from gateway.tenants.registry import disable_key
from tests.conftest import PostgresServer
from tests.gateway.batches.conftest import Hold, Room, line
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG

pytestmark = pytest.mark.anyio


async def test_cancelling_keeps_what_is_finished(room: Room, worker: Worker) -> None:
    hold = Hold(room.gate.upstream)
    batch = await room.create(line(1), *(line(number, "probe/held") for number in range(2, 40)))
    await room.gate.until(lambda: hold.num_asked >= 1)
    cancelling = await room.house.batches.cancel(room.tenant_id, batch.id)
    assert cancelling.status == "cancelling"
    await room.until(batch, lambda now: now.num_completed >= 1)
    await asyncio.sleep(0)
    hold.let_go()
    ended = await room.ended(batch)
    assert ended.status == "cancelled"
    output, errors = await room.read(ended.output_file_id), await room.read(ended.error_file_id)
    assert len(output) == ended.num_completed >= 1
    assert {each["error"]["code"] for each in errors} == {"batch_cancelled"}
    assert [each["custom_id"] for each in output + errors] == [f"q-{number}" for number in range(1, 40)]
    assert hold.num_asked < 38
    with pytest.raises(InvalidRequestError):
        await room.house.batches.cancel(room.tenant_id, batch.id)


async def test_what_is_not_answered_in_its_day_expires(room: Room, worker: Worker) -> None:
    now = datetime.now(UTC)
    file_id = await room.file(line(1), line(2))
    batch = await room.create(line(1))
    late = replace(batch, id="batch_late", input_file_id=file_id, expires_at=now - timedelta(seconds=1))
    await insert_batch(room.house.database, late)
    ended = await room.ended(late)
    assert ended.status == "expired"
    assert [each["error"]["code"] for each in await room.read(ended.error_file_id)] == ["batch_expired"] * 2


async def test_a_worker_that_stops_puts_its_batch_back_and_another_goes_on(room: Room) -> None:
    hold = Hold(room.gate.upstream)
    first = Worker(room.house, room.gate.pipeline)
    await first.start()
    batch = await room.create(line(1), line(2), *(line(number, "probe/held") for number in range(3, 6)))
    await room.gate.until(lambda: hold.num_asked == 3)
    await room.until(batch, lambda now: now.num_completed == 2)
    await first.aclose()
    assert (await room.find(batch)).status == "in_progress"
    hold.let_go()
    second = Worker(room.house, room.gate.pipeline)
    await second.start()
    ended = await room.ended(batch)
    await second.aclose()
    assert (ended.status, ended.num_completed) == ("completed", 5)
    assert [each["custom_id"] for each in await room.read(ended.output_file_id)] == [f"q-{n}" for n in range(1, 6)]
    rows = await room.gate.rows("SELECT status, COUNT(*) AS number FROM requests GROUP BY status")
    assert {row["status"]: row["number"] for row in rows} == {"ok": 5, "cancelled": 3}


async def test_a_house_that_closes_asks_no_further_lines(room: Room, worker: Worker) -> None:
    hold = Hold(room.gate.upstream)
    batch = await room.create(*(line(number, "probe/held") for number in range(30)))
    await room.gate.until(lambda: hold.num_asked >= 1)
    room.house.doors.close()
    hold.let_go()
    assert await room.house.doors.emptied(10)
    await worker.aclose()
    now = await room.find(batch)
    assert now.status == "in_progress"
    assert now.num_failed == 0
    assert 1 <= now.num_completed == hold.num_asked < 30
    room.house.doors = Doors()


async def test_a_key_that_is_disabled_asks_nothing_more(room: Room, worker: Worker) -> None:
    hold = Hold(room.gate.upstream)
    batch = await room.create(line(1, "probe/held"), *(line(number) for number in range(2, 20)))
    await room.gate.until(lambda: hold.num_asked == 1)
    hold.let_go()
    await room.ended(batch)
    await disable_key(room.house.database, room.principal.key.id)
    await room.house.authenticator._watch.poll()
    ended = await room.ended(await room.create(line(1)))
    assert ended.status == "failed"
    assert "disabled" in (ended.errors or "")


async def test_a_result_whose_commit_was_not_heard_of_counts_once(room: Room) -> None:
    batch = await room.create(line(0))
    soon = datetime.now(UTC) + timedelta(seconds=30)
    assert await claim_batch(room.house.database, "me", datetime.now(UTC), soon, ()) is not None
    result = Result(1, True, b"{}")
    await insert_result(room.house.database, "me", batch.id, result)
    capacity = IdleCapacity(lambda: 1, lambda: 0)
    await Run(room.house, asking.Asking(room.house, room.gate.pipeline, capacity), "me", batch)._store(result)
    assert (await room.find(batch)).num_completed == 1


async def test_answers_that_come_while_the_database_is_away_are_kept(
    gate_with: OpenGate, postgres_server: PostgresServer
) -> None:
    store = f'[store]\ndatabase_url = "{postgres_server.new_database()}"\n'
    room = Room(await gate_with(CONFIG.replace("[cache]", f"{store}[cache]")))
    worker = Worker(room.house, room.gate.pipeline)
    await worker.start()
    hold = Hold(room.gate.upstream)
    batch = await room.create(*(line(number, "probe/held") for number in range(3)))
    await room.gate.until(lambda: hold.num_asked == 3)
    postgres_server.stop()
    hold.let_go()
    await room.gate.until(lambda: len(room.gate.records) == 3)
    postgres_server.start()
    ended = await room.ended(batch)
    assert (ended.status, ended.num_completed, hold.num_asked) == ("completed", 3, 3)
    await worker.aclose()


async def test_a_lease_is_one_gateways_alone_until_it_runs_out(room: Room) -> None:
    batch, database, now = await room.create(line(1)), room.house.database, datetime.now(UTC)
    soon = now + timedelta(seconds=10)
    claimed = await asyncio.gather(*(claim_batch(database, f"g{n}", now, soon, ()) for n in range(5)))
    (owner,) = [f"g{n}" for n, found in enumerate(claimed) if found is not None]
    assert await claim_batch(database, "late", soon - timedelta(seconds=1), soon, ()) is None
    taken_over = await claim_batch(database, "late", soon + timedelta(seconds=1), soon, ())
    assert taken_over is not None
    with pytest.raises(LeaseLost):
        await insert_result(database, owner, batch.id, Result(1, True, b"{}"))
    assert (await room.find(batch)).num_completed == 0
