"""A batch through kill -9, SIGTERM and a second gateway: every line answered once, every call of a model booked."""

import asyncio
import contextlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.faults.misbehaviours import completion
from tests.support.server import Gateway

URL = "/v1/chat/completions"
NUM_LINES = 40
CONFIG = """
[store]
database_url = "{database_url}"
[cache]
enabled = false
[batch]
concurrency = 4
[[provider]]
name = "upstream"
base_url = "{upstream}"
[[model]]
name = "slow/*"
provider = "upstream"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
"""


async def slowly(wire: Wire) -> None:
    await asyncio.sleep(0.05)
    await wire.json(completion("done"))


@pytest.fixture
def slow(upstream: MisbehavingUpstream) -> MisbehavingUpstream:
    upstream.on("line", slowly)
    upstream.received.clear()
    return upstream


def start(folder: Path, name: str, upstream: MisbehavingUpstream, database_url: str = "") -> Gateway:
    folder.mkdir(exist_ok=True)
    config = folder / f"{name}.toml"
    config.write_text(CONFIG.format(database_url=database_url, upstream=upstream.base_url))
    gateway = Gateway(config, folder / name)
    gateway.start()
    return gateway


def client_of(gateway: Gateway, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.base_url, api_key=key, max_retries=3)


def begin(client: openai.OpenAI, name: str = "q") -> str:
    def line(number: int) -> str:
        body = {"model": "slow/line", "messages": [{"role": "user", "content": f"{name}-{number}"}]}
        return json.dumps({"custom_id": f"{name}-{number}", "method": "POST", "url": URL, "body": body})

    lines = "\n".join(map(line, range(NUM_LINES))).encode()
    file = client.files.create(file=("in.jsonl", lines), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h").id


def until(client: openai.OpenAI, id: str, condition: Callable[[Any], bool], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not condition(batch := client.batches.retrieve(id)):
        assert time.monotonic() < deadline, batch
        time.sleep(0.02)
    return batch


def answered(client: openai.OpenAI, id: str, name: str = "q") -> None:
    """The batch is complete, and its output file has each line once."""
    batch = until(client, id, lambda now: now.status == "completed")
    assert batch.request_counts.model_dump() == {"total": NUM_LINES, "completed": NUM_LINES, "failed": 0}
    output = [json.loads(each) for each in client.files.content(batch.output_file_id).text.splitlines()]
    assert [each["custom_id"] for each in output] == [f"{name}-{number}" for number in range(NUM_LINES)]


def asked(upstream: MisbehavingUpstream) -> Counter[str]:
    """How often each line reached the upstream."""
    return Counter(request.json["messages"][0]["content"] for request in upstream.of("line"))


def test_kill_9_in_the_middle(slow: MisbehavingUpstream, tmp_path: Path) -> None:
    gateway = start(tmp_path, "one", slow)
    key = gateway.key("acme")
    with client_of(gateway, key) as client:
        id = begin(client)
        until(client, id, lambda now: now.request_counts.completed >= 10)
        gateway.kill()
        num_before = len(slow.of("line"))
        gateway.start()
        answered(client, id)
    calls = asked(slow)
    assert set(calls) == {f"q-{number}" for number in range(NUM_LINES)}
    assert max(calls.values()) <= 2
    assert calls.total() - NUM_LINES <= 4  # those in flight
    assert num_before < calls.total()
    gateway.stop()
    with contextlib.closing(sqlite3.connect(gateway.home / "tollhouse.db")) as database:
        query = "SELECT r.status, COUNT(*) FROM attempts a JOIN requests r ON r.id = a.request_id WHERE r.batch_id = ?"
        rows = dict(database.execute(f"{query} GROUP BY r.status", (id,)).fetchall())
        costs = database.execute("SELECT DISTINCT cost_nanousd FROM requests WHERE status = 'ok'").fetchall()
    assert sum(rows.values()) == calls.total()
    assert rows["ok"] >= NUM_LINES
    assert costs == [((11 * 1000 + 7 * 2000) // 2,)]


def test_two_gateways_share_the_work_and_one_leaves(
    slow: MisbehavingUpstream, tmp_path: Path, postgres_url: str
) -> None:
    first = start(tmp_path, "first", slow, postgres_url)
    second = start(tmp_path, "second", slow, postgres_url)
    keys = {name: first.key(name) for name in ("amber", "birch")}
    clients = {name: client_of(second, key) for name, key in keys.items()}
    try:
        with client_of(first, keys["amber"]) as at_first:
            ids = {"amber": begin(at_first, "amber"), "birch": begin(clients["birch"], "birch")}
            until(at_first, ids["amber"], lambda now: now.request_counts.completed >= 3)
        first.stop()  # puts its batch back
        for name, client in clients.items():
            answered(client, ids[name], name)
    finally:
        for client in clients.values():
            client.close()
        first.stop()
        second.stop()
    assert set(asked(slow).values()) == {1}  # what was under way ended within the grace, and nothing ran twice
