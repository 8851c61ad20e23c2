"""Batches from their file to their files: each line answered once, whatever stops in between; half the price."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from openai.types import Batch as OpenAIBatch

from gateway.batches import asking
from gateway.batches.capacity import LOOK_AGAIN_S, IdleCapacity
from gateway.batches.run import Run
from gateway.batches.types import Batch, LeaseLost, Result
from gateway.batches.worker import Worker
from gateway.doors import Doors
from gateway.errors import InvalidRequestError, NotFoundError
from gateway.store.batches import claim_batch, insert_batch, insert_result
from gateway.tenants.registry import disable_key
from gateway.tenants.types import Limits, Principal
from gateway.wire.batches_api import BatchRequest, batch_object, parse_batch
from gateway.wire.chat import parse_chat
from gateway.wire.dialect import PlainDialect
from gateway.wire.inference import Inference
from tests.conftest import PostgresServer
from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.faults.misbehaviours import completion
from tests.support.in_process import CONFIG, Gate

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
OpenGate = Callable[[str], Awaitable[Gate]]


def line(number: int, model: str = "probe/ok", url: str = CHAT, **changes: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": f"Question {number}?"}]}
    return {"custom_id": f"q-{number}", "method": "POST", "url": url, "body": body} | changes


class Room:
    """One gateway, one tenant, and what the tenant does with batches."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.house = gate.house
        self.principal: Principal = gate.house.authenticator.authenticate(f"Bearer {gate.key}")
        self.tenant_id = self.principal.tenant.id

    async def file(self, *lines: Any, purpose: str = "batch") -> str:
        raw = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines)
        writing = await self.house.files.begin(self.tenant_id)
        await writing.write(raw)
        return (await writing.finish(filename="in.jsonl", purpose=purpose)).id

    async def create(self, *lines: Any, endpoint: str = CHAT, **fields: Any) -> Batch:
        wanted = BatchRequest(await self.file(*lines), endpoint, "24h", **fields)
        return await self.house.batches.create(self.principal, wanted)

    async def find(self, batch: Batch) -> Batch:
        return await self.house.batches.find(self.tenant_id, batch.id)

    async def ended(self, batch: Batch, seconds: float = 30.0) -> Batch:
        return await self.until(batch, lambda now: not now.unfinished, seconds)

    async def until(self, batch: Batch, condition: Callable[[Batch], bool], seconds: float = 30.0) -> Batch:
        async with asyncio.timeout(seconds):
            while not condition(now := await self.find(batch)):
                await asyncio.sleep(0.02)
        return now

    async def read(self, file_id: str | None) -> list[dict[str, Any]]:
        if file_id is None:
            return []
        file = await self.house.files.find(self.tenant_id, file_id)
        raw = b"".join([part async for part in self.house.files.parts(file.id)])
        assert len(raw) == file.num_bytes
        return [json.loads(each) for each in raw.splitlines()]


@pytest.fixture
async def room(gate_with: OpenGate) -> Room:
    return Room(await gate_with(CONFIG))


@pytest.fixture
async def worker(room: Room) -> AsyncIterator[Worker]:
    worker = Worker(room.house, room.gate.pipeline)
    await worker.start()
    yield worker
    await worker.aclose()


async def test_every_line_is_answered_in_the_output_file(room: Room, worker: Worker) -> None:
    created = await room.create(*(line(number) for number in range(20)), metadata={"job": "nightly"})
    OpenAIBatch.model_validate(batch_object(created) | {"metadata": {"job": "nightly"}}, strict=True)
    ended = await room.ended(created)
    told = batch_object(ended)
    assert told["status"] == "completed"
    assert told["request_counts"] == {"total": 20, "completed": 20, "failed": 0}
    assert told["error_file_id"] is None
    assert told["created_at"] <= told["in_progress_at"] <= told["finalizing_at"] <= told["completed_at"]
    output = await room.read(ended.output_file_id)
    assert [each["custom_id"] for each in output] == [f"q-{number}" for number in range(20)]
    assert len({each["id"] for each in output}) == 20
    for each in output:
        assert each["error"] is None
        assert each["response"]["status_code"] == 200
        assert each["response"]["body"]["choices"][0]["message"]["content"] == "ok"
    requests = await room.gate.rows("SELECT * FROM requests")
    assert {row["batch_id"] for row in requests} == {created.id}
    assert {each["response"]["request_id"] for each in output} == {row["id"] for row in requests}


async def test_half_the_price_is_paid_and_the_books_add_up(room: Room, worker: Worker) -> None:
    await room.ended(await room.create(line(1), line(2, "dear")))
    full = {"probe/ok": 11 * 1000 + 7 * 2000, "dear": 11 * 10_000 + 7 * 20_000}  # nano-dollars
    for row in await room.gate.rows("SELECT * FROM requests"):
        assert row["cost_nanousd"] == full[row["requested_model"]] // 2
        assert row["baseline_cost_nanousd"] == full["dear"] // 2
        assert row["cost_nanousd"] + row["saved_by_routing_nanousd"] == row["baseline_cost_nanousd"]
    attempts = await room.gate.rows("SELECT SUM(cost_nanousd) AS sum FROM attempts")
    assert attempts[0]["sum"] == sum(full.values()) // 2


async def test_refusals_go_into_the_error_file(room: Room, worker: Worker) -> None:
    bad = line(2) | {"body": {"model": "probe/ok", "messages": []}}
    ended = await room.ended(await room.create(line(1), bad, line(3, "probe/400"), line(4, "dead")))
    assert (ended.status, ended.num_completed, ended.num_failed) == ("completed", 1, 3)
    assert [each["custom_id"] for each in await room.read(ended.output_file_id)] == ["q-1"]
    errors = {each["custom_id"]: each["response"] for each in await room.read(ended.error_file_id)}
    assert {name: response["status_code"] for name, response in errors.items()} == {"q-2": 400, "q-3": 400, "q-4": 502}
    assert errors["q-2"]["body"]["error"]["param"] == "messages"


FAULTS = [
    (b"{", "invalid_json_line", None),
    (b'"text"', "invalid_request", None),
    (b"\xff{}", "invalid_json_line", None),
    (line(1) | {"method": "GET"}, "invalid_method", "method"),
    (line(1, url="/v1/embeddings"), "invalid_url", "url"),
    (line(1, custom_id=""), "invalid_request", "custom_id"),
    (line(1, custom_id=7), "invalid_request", "custom_id"),
    ({"method": "POST", "url": CHAT, "body": {}}, "invalid_request", "custom_id"),
    (line(1, body={"messages": []}), "missing_required_parameter", "body.model"),
    (line(1, body={"model": "probe/ok", "stream": True}), "invalid_request", "body.stream"),
    (line(2, "no-such-model"), "model_not_found", "body.model"),
    (line(3, "embed/ok"), "model_not_found", "body.model"),
    (line(0), "duplicate_custom_id", "custom_id"),
]


async def test_a_faulty_file_fails_before_anything_is_asked(room: Room, worker: Worker) -> None:
    faulty = [fault for fault, *_ in FAULTS]
    ended = await room.ended(await room.create(line(0), b"  ", *faulty))
    assert (ended.status, ended.output_file_id, ended.error_file_id) == ("failed", None, None)
    OpenAIBatch.model_validate(json.loads(json.dumps(batch_object(ended), default=lambda raw: json.loads(bytes(raw)))))
    assert ended.errors is not None
    told = [(fault["line"], fault["code"], fault["param"]) for fault in json.loads(ended.errors)]
    assert told == [(number, code, param) for number, (_, code, param) in enumerate(FAULTS, 3)]
    assert room.gate.num_sent() == 0
    assert (await room.ended(await room.create(b"\n\n"))).status == "failed"


async def test_what_can_not_be_a_batch_is_refused_at_once(room: Room) -> None:
    good = {"input_file_id": "file-x", "endpoint": CHAT, "completion_window": "24h"}
    faults = {"endpoint": "/v1/files", "completion_window": "1h", "metadata": {"k" * 65: "v"}, "input_file_id": 7}
    for name, value in faults.items():
        with pytest.raises(InvalidRequestError) as refused:
            parse_batch(json.dumps(good | {name: value}).encode())
        assert refused.value.param == name
    for file_id in ("file-x", await room.file(line(1), purpose="user_data")):
        with pytest.raises(InvalidRequestError) as refused:
            await room.house.batches.create(room.principal, BatchRequest(file_id, CHAT, "24h"))
        assert refused.value.param == "input_file_id"


async def test_nobody_finds_anothers_batch(room: Room) -> None:
    batch = await room.create(line(1))
    for attempt in (room.house.batches.find("other", batch.id), room.house.batches.cancel("other", batch.id)):
        with pytest.raises(NotFoundError):
            await attempt
    assert await room.house.batches.page("other", after=None, limit=10) == []


async def test_a_file_that_a_batch_reads_stays(room: Room) -> None:
    batch = await room.create(line(1))
    with pytest.raises(InvalidRequestError, match=batch.id):
        await room.house.files.remove(room.tenant_id, batch.input_file_id)
    await room.house.batches.cancel(room.tenant_id, batch.id)


class Hold:
    """A behaviour of the upstream that answers once it is let go."""

    def __init__(self, upstream: MisbehavingUpstream, name: str = "held") -> None:
        self.upstream = upstream
        self.name = name
        self._let_go = False
        upstream.on(name, self)

    def let_go(self) -> None:
        self._let_go = True

    @property
    def num_asked(self) -> int:
        return len(self.upstream.of(self.name))

    async def __call__(self, wire: Wire) -> None:
        while not self._let_go:
            await asyncio.sleep(0.01)
        await wire.json(completion("held"))


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


async def test_a_tenants_limits_slow_a_batch_down_and_fail_nothing(room: Room, worker: Worker) -> None:
    room.gate.key = await room.gate.tenant("slow", Limits(concurrent_requests=1))
    slow = Room(room.gate)
    ended = await slow.ended(await slow.create(*(line(number) for number in range(5))))
    assert (ended.num_completed, ended.num_failed) == (5, 0)


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


async def test_other_endpoints(room: Room, worker: Worker) -> None:
    embed = {"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": {"model": "embed/ok", "input": "x"}}
    ended = await room.ended(await room.create(embed, endpoint="/v1/embeddings"))
    (output,) = await room.read(ended.output_file_id)
    assert output["response"]["body"]["data"][0]["embedding"]
    respond = {"custom_id": "r", "method": "POST", "url": "/v1/responses", "body": {"model": "probe/ok", "input": "x"}}
    ended = await room.ended(await room.create(respond, endpoint="/v1/responses"))
    (output,) = await room.read(ended.output_file_id)
    assert output["response"]["body"]["output"][0]["content"][0]["text"] == "ok"


async def test_a_line_that_is_told_to_come_later_does(room: Room, worker: Worker) -> None:
    async def busy_at_first(wire: Wire) -> None:
        if wire.index == 0:
            await wire.json({"error": {"message": "later"}}, "429 Too Many Requests", {"Retry-After": "1"})
        else:
            await wire.json(completion("now"))

    room.gate.upstream.on("busy", busy_at_first)
    ended = await room.ended(await room.create(line(1, "probe/busy")))
    assert (ended.num_completed, ended.num_failed) == (1, 0)
    rows = await room.gate.rows("SELECT http_status FROM requests ORDER BY id")
    assert [row["http_status"] for row in rows] == [429, 200]


async def test_a_line_that_the_gateway_fails_on_harms_no_other(
    room: Room, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its batch would begin again and again, and pay for the others each time."""

    def parse(raw: bytes) -> Inference:
        if b"Question 1?" in raw:
            raise RuntimeError("a fault of ours")
        return parse_chat(raw)

    monkeypatch.setitem(asking._DIALECTS, CHAT, PlainDialect(parse))
    ended = await room.ended(await room.create(*(line(number) for number in range(3))))
    assert (ended.status, ended.num_completed, ended.num_failed) == ("completed", 2, 1)
    (failed,) = await room.read(ended.error_file_id)
    assert (failed["custom_id"], failed["response"]["status_code"]) == ("q-1", 500)
    assert room.gate.num_sent() == 2


async def test_a_lowered_limit_of_bodies_does_not_stop_a_batch_that_was_checked(room: Room) -> None:
    first = Worker(room.house, room.gate.pipeline)
    await first.start()
    hold = Hold(room.gate.upstream)
    batch = await room.create(*(line(number, "probe/held") for number in range(3)))
    await room.gate.until(lambda: hold.num_asked == 3)
    await first.aclose()
    await room.gate.reconfigure(("[cache]", "[server]\nmax_body_mb = 0.0001\n[cache]"))
    hold.let_go()
    second = Worker(room.house, room.gate.pipeline)
    await second.start()
    ended = await room.ended(batch)
    assert (ended.status, ended.num_completed) == ("completed", 3)
    await second.aclose()


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


async def test_lines_yield_to_requests_that_somebody_waits_for() -> None:
    inside = 0
    capacity = IdleCapacity(lambda: 3, lambda: inside)
    async with AsyncExitStack() as lines, asyncio.timeout(10):
        for _ in range(3):
            await lines.enter_async_context(capacity.place())
        inside = 3  # its own
        waiting = asyncio.create_task(lines.enter_async_context(capacity.place()))
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        assert not waiting.done()
        waiting.cancel()
    inside = 100
    async with asyncio.timeout(10), capacity.place():  # one may always run
        second = asyncio.create_task(_pass(capacity))
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        assert not second.done()
        inside = 2
        await second


async def _pass(capacity: IdleCapacity) -> None:
    async with capacity.place():
        pass


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
