"""The official client's files, batches, moderations and audio, and vLLM's tokens, through a real gateway."""

import contextlib
import http.client
import io
import json
import sqlite3
import time
from typing import Any

import openai
import pytest

from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.support.server import Gateway

MP3 = bytes(range(256)) * 2000
URL = "/v1/chat/completions"


def line(number: int, model: str) -> bytes:
    body = {"model": model, "messages": [{"role": "user", "content": f"Say {number}."}], "max_tokens": 8}
    return json.dumps({"custom_id": f"q-{number}", "method": "POST", "url": URL, "body": body}).encode()


def ended(client: openai.OpenAI, id: str, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while (batch := client.batches.retrieve(id)).status not in ("completed", "failed", "expired", "cancelled"):
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
    return batch


def booked(gateway: Gateway, batch_id: str, number: int) -> list[sqlite3.Row]:
    """A batch's requests in the books, once they are all there."""
    deadline = time.monotonic() + 20
    with contextlib.closing(sqlite3.connect(gateway.home / "tollhouse.db")) as database:
        database.row_factory = sqlite3.Row
        while True:
            rows = database.execute("SELECT * FROM requests WHERE batch_id = ?", (batch_id,)).fetchall()
            if len(rows) >= number:
                return rows
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_file_there_and_back(client: openai.OpenAI) -> None:
    data = bytes(range(256)) * 10_000
    made = client.files.create(file=("data.bin", data), purpose="user_data")
    assert (made.bytes, made.filename, made.purpose, made.object) == (len(data), "data.bin", "user_data", "file")
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == data
    assert made in list(client.files.list(limit=2))
    assert client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)


def test_a_batch_on_the_bundled_engine_costs_half(client: openai.OpenAI, gateway: Gateway) -> None:
    lines = b"\n".join(line(number, "smollm2") for number in range(6))
    file = client.files.create(file=("in.jsonl", io.BytesIO(lines)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h", metadata={"a": "b"})
    assert batch.metadata == {"a": "b"}
    done = ended(client, batch.id)
    assert done.status == "completed"
    assert done.request_counts.model_dump() == {"total": 6, "completed": 6, "failed": 0}
    output = [json.loads(each) for each in client.files.content(done.output_file_id).text.splitlines()]
    assert [each["custom_id"] for each in output] == [f"q-{number}" for number in range(6)]
    assert batch.id in [each.id for each in client.batches.list(limit=5)]
    usages = [each["response"]["body"]["usage"] for each in output]
    full = sum(usage["prompt_tokens"] * 10 + usage["completion_tokens"] * 20 for usage in usages)
    rows = booked(gateway, batch.id, 6)
    assert {row["endpoint"] for row in rows} == {"chat.completions"}
    assert sum(row["cost_nanousd"] for row in rows) * 2 == full


def test_a_faulty_batch_tells_its_lines(client: openai.OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", line(1, "smollm2") + b"\n{\n"), purpose="batch")
    batch = ended(client, client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h").id)
    assert batch.status == "failed"
    assert [(fault.line, fault.code) for fault in batch.errors.data] == [(2, "invalid_json_line")]


def test_cancelling(client: openai.OpenAI) -> None:
    lines = b"\n".join(line(number, "probe/ok") for number in range(1000))
    file = client.files.create(file=("in.jsonl", lines), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h")
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    done = ended(client, batch.id)
    assert done.status == "cancelled"
    assert done.request_counts.completed < 1000
    with pytest.raises(openai.BadRequestError):
        client.batches.cancel(batch.id)


@pytest.fixture(scope="module")
def passing(upstream: MisbehavingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Any:
    async def voice(wire: Wire) -> None:
        await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(MP3), 64_000):
            await wire.piece(MP3[start : start + 64_000])
        await wire.end(done=False)

    async def cut(wire: Wire) -> None:
        await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n")
        await wire.piece(MP3[:64_000], pause=0.1)
        wire.reset()

    async def moderate(wire: Wire) -> None:
        await wire.json({"id": "modr-1", "model": "m", "results": []})

    async def hear(wire: Wire) -> None:
        await wire.json({"text": "hello"})

    for name, script in (("voice", voice), ("cut-off", cut), ("moderator", moderate), ("hearing", hear)):
        upstream.on(name, script)
    models = "".join(
        f'[[model]]\nname = "{name}"\nprovider = "upstream"\nkind = "{kind}"\n'
        for name, kind in (
            ("voice", "speech"),
            ("cut-off", "speech"),
            ("moderator", "moderation"),
            ("hearing", "transcription"),
        )
    )
    provider = f'[[provider]]\nname = "upstream"\nbase_url = "{upstream.base_url}"\nmax_retries = 0\n'
    config = f"[cache]\nsemantic = false\n{provider}{models}"
    with Gateway.over(config, tmp_path_factory.mktemp("passing")) as running:
        yield running


@pytest.fixture(scope="module")
def passing_key(passing: Gateway) -> str:
    return passing.key("acme")


def test_moderation_and_audio(passing: Gateway, passing_key: str) -> None:
    with openai.OpenAI(base_url=passing.base_url, api_key=passing_key, max_retries=0) as client:
        assert client.moderations.create(input="text").id == "modr-1"
        heard = client.audio.transcriptions.create(file=("a.wav", b"RIFF"), model="hearing")
        assert heard.text == "hello"
        with pytest.deprecated_call():
            assert client.audio.translations.create(file=("a.wav", b"RIFF"), model="hearing").text == "hello"
        assert client.audio.speech.create(model="voice", voice="alloy", input="Hello.").content == MP3
        with pytest.raises(openai.BadRequestError, match="an image model"):
            client.images.generate(model="x", prompt="y")


def test_a_cut_answer_is_no_whole_one_on_the_wire(passing: Gateway, passing_key: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", passing.port, timeout=20)
    headers = {"authorization": f"Bearer {passing_key}", "content-type": "application/json"}
    body = json.dumps({"model": "cut-off", "voice": "v", "input": "x"})
    connection.request("POST", "/v1/audio/speech", body, headers)
    response = connection.getresponse()
    assert response.status == 200
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        response.read()
    connection.close()


def test_tokens(gateway: Gateway, key: str) -> None:
    def ask(path: str, **body: Any) -> tuple[int, Any]:
        status, _, answer = gateway.post(path, {"model": "smollm2"} | body, key)
        return status, json.loads(answer)

    status, told = ask("/tokenize", prompt="Hello, harbour!", return_token_strs=True)
    assert status == 200
    assert told["count"] == len(told["tokens"]) == len(told["token_strs"]) > 2
    assert told["max_model_len"] == 8192
    assert ask("/detokenize", tokens=told["tokens"]) == (200, {"prompt": "Hello, harbour!"})
    messages = [{"role": "user", "content": "Hello"}]
    status, of_chat = ask("/tokenize", messages=messages)
    answer = gateway.post(
        URL, {"model": "smollm2", "messages": messages, "max_tokens": 1}, key, cache_control="no-store"
    )
    assert of_chat["count"] == json.loads(answer[2])["usage"]["prompt_tokens"]
    assert of_chat["token_strs"] is None
    refused = [
        (("/tokenize", {"model": "probe/ok", "prompt": "x"}), 400, "missing_capability"),
        (("/tokenize", {"model": "nobody", "prompt": "x"}), 404, "model_not_found"),
        (("/detokenize", {"tokens": [10**9]}), 400, None),
        (("/tokenize", {"prompt": ["a", "b"]}), 400, None),
    ]
    for (path, body), status, code in refused:
        found, told = ask(path, **body)
        assert (found, told["error"]["code"]) == (status, code)
