"""From a file to its files: each line answered once, at half the price, the refused ones in the error file."""

import pytest
from openai.types import Batch as OpenAIBatch

from gateway.batches import asking
from gateway.batches.worker import Worker
from gateway.wire.batches_api import batch_object
from gateway.wire.chat import parse_chat
from gateway.wire.dialect import PlainDialect
from gateway.wire.inference import Inference
from tests.faults.misbehaving import Wire
from tests.faults.misbehaviours import completion
from tests.gateway.batches.conftest import CHAT, Hold, Room, line

pytestmark = pytest.mark.anyio


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
