"""The worker of batches, when it has nothing to do."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.batches import worker as module
from gateway.batches.worker import Worker
from gateway.store.batches import claim_batch
from tests.conftest import PostgresServer
from tests.support.in_process import CONFIG, Gate

pytestmark = pytest.mark.anyio


async def test_a_database_that_is_away_is_told_of_once(
    gate_with: Callable[[str], Awaitable[Gate]],
    postgres_server: PostgresServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "tollhouse.batches")
    looks: list[None] = []

    async def counted(*arguments: Any) -> Any:
        looks.append(None)
        return await claim_batch(*arguments)

    monkeypatch.setattr(module, "claim_batch", counted)
    store = f'[store]\ndatabase_url = "{postgres_server.new_database()}"\n'
    gate = await gate_with(CONFIG.replace("[cache]", f"{store}[cache]"))
    worker = Worker(gate.house, gate.pipeline, lease_s=0.1)  # which looks every 20 ms
    await worker.start()
    postgres_server.stop()
    looks.clear()
    await gate.until(lambda: len(looks) >= 5)
    postgres_server.start()
    await gate.until(lambda: "batches go on" in caplog.messages)
    assert len([said for said in caplog.messages if said.startswith("batches wait for the database")]) == 1
    await worker.aclose()
