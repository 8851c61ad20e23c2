"""What can not be a batch is refused before anything is asked; and whose a batch and its file are."""

import json

import pytest
from openai.types import Batch as OpenAIBatch

from gateway.batches.worker import Worker
from gateway.errors import InvalidRequestError, NotFoundError
from gateway.wire.batches_api import BatchRequest, batch_object, parse_batch
from tests.gateway.batches.conftest import CHAT, Room, line

pytestmark = pytest.mark.anyio


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
