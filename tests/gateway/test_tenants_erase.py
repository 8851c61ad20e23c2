"""What is kept of tenants' texts goes when its time is over, or when they ask; what it cost stays."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, text

from gateway.ids import id_at, new_id
from gateway.ledger.records import AttemptRecord, DecisionRecord, RequestRecord
from gateway.ledger.retention import Retention
from gateway.store import retention
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.store.file_tables import batch_results, batches, file_parts, files
from gateway.store.tables import responses
from gateway.tenants.erase import erase_tenant
from gateway.tenants.errors import UnknownName
from gateway.tenants.registry import change_tenant, create_tenant
from gateway.tenants.types import Tenant

pytestmark = pytest.mark.anyio
SECRET = "what nobody else may read"
DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "AT_A_TIME", 3)  # so that every kind takes several turns


def asked(tenant: Tenant, days_ago: float = 0.0) -> RequestRecord:
    started_at = time.time() - days_ago * DAY_S
    identifier = id_at(started_at)[:12] + new_id()[12:]
    attempt = AttemptRecord(
        id=new_id(), request_id=identifier, index=0, model="m", provider="p", upstream_model="u",
        started_at=started_at, cost_nanousd=7,
    )  # fmt: skip
    decision = DecisionRecord(request_id=identifier, tier="t", reason="r", embedding=b"\1\2", text=SECRET)
    return RequestRecord(
        id=identifier, tenant_id=tenant.id, key_id="k", endpoint="chat.completions", requested_model="m",
        started_at=started_at, cost_nanousd=7, user=SECRET, namespace=SECRET, attempts=(attempt,), decision=decision,
    )  # fmt: skip


async def store_all_kinds(database: Database, tenant: Tenant) -> None:
    """Ten of each."""
    await insert_entries(database, [asked(tenant) for _ in range(10)])
    now = datetime.now(UTC)
    later = now + timedelta(days=1)
    async with database.write() as transaction:
        for _ in range(10):
            response = {"id": new_id(), "tenant_id": tenant.id, "status": "completed", "background": False}
            times = {"created_at": now, "expires_at": later}
            told = {"num_bytes": 9, "input": SECRET, "body": SECRET}
            await transaction.execute(insert(responses).values(response | times | told))
            file = {"id": new_id(), "tenant_id": tenant.id, "filename": SECRET, "purpose": "batch", "num_bytes": 9}
            await transaction.execute(insert(files).values(file | {"whole": True, "created_at": now}))
            part = {"file_id": file["id"], "part": 0, "data": SECRET.encode()}
            await transaction.execute(insert(file_parts).values(part))
            batch = {"id": new_id(), "tenant_id": tenant.id, "key_id": "k", "endpoint": "/v1/chat/completions"}
            state = {"input_file_id": file["id"], "status": "completed", "num_lines": 1, "metadata": SECRET}
            counts = {"num_completed": 1, "num_failed": 0}
            await transaction.execute(insert(batches).values(batch | state | counts | times))
            result = {"batch_id": batch["id"], "line": 1, "ok": True, "answer": SECRET.encode()}
            await transaction.execute(insert(batch_results).values(result))


async def rows(database: Database, query: str) -> list[Any]:
    async with database.read() as connection:
        return list((await connection.execute(text(query))).all())


async def counts(database: Database, tenant: Tenant) -> dict[str, int]:
    mine = f"tenant_id = '{tenant.id}'"
    queries = {
        name: f"SELECT COUNT(*) FROM {name} WHERE {mine}" for name in ("requests", "responses", "files", "batches")
    }
    queries["decisions"] = f"SELECT COUNT(*) FROM decisions WHERE request_id IN (SELECT id FROM requests WHERE {mine})"
    return {name: (await rows(database, query))[0][0] for name, query in queries.items()}


async def test_an_erased_tenants_words_are_nowhere_and_its_money_is_all_there(database: Database) -> None:
    acme, other = await create_tenant(database, "acme"), await create_tenant(database, "other")
    for tenant in (acme, other):
        await store_all_kinds(database, tenant)
    untouched = await counts(database, other)
    gone = await erase_tenant(database, "acme")
    assert (gone.decisions, gone.requests, gone.stored) == (10, 10, 30)
    kinds = {"responses": 0, "files": 0, "batches": 0, "decisions": 0, "requests": 10}
    assert await counts(database, acme) == kinds
    assert await counts(database, other) == untouched == dict.fromkeys(kinds, 10)
    parts = "SELECT (SELECT COUNT(*) FROM file_parts) + (SELECT COUNT(*) FROM batch_results)"
    assert (await rows(database, parts))[0][0] == 20  # the other's
    money = f"SELECT * FROM requests WHERE tenant_id = '{acme.id}'"
    assert {(row.cost_nanousd, row.user, row.namespace) for row in await rows(database, money)} == {(7, None, None)}
    assert len(await rows(database, "SELECT * FROM attempts WHERE cost_nanousd = 7")) == 20
    erasures = await rows(database, "SELECT tenant_id FROM cache_erasures")
    assert [row.tenant_id for row in erasures] == [acme.id]  # every gateway forgets what it cached
    again = await erase_tenant(database, "acme")
    assert (again.decisions, again.requests, again.stored) == (0, 0, 0)
    acts = await rows(database, "SELECT action FROM audit WHERE action = 'tenant.erase'")
    assert len(acts) == 2
    with pytest.raises(UnknownName):
        await erase_tenant(database, "nobody")


async def test_what_was_captured_goes_when_its_days_are_over(database: Database) -> None:
    usual, brief, lasting = [
        await create_tenant(database, name, retention_days=days) for name, days in (("a", None), ("b", 2), ("c", 0))
    ]
    for tenant in (usual, brief, lasting):
        await insert_entries(database, [asked(tenant, days) for days in (0.1, 1, 3, 5, 20, 40) for _ in range(2)])
    days = 30.0
    keeper = Retention(database, lambda: days)
    assert await keeper.sweep() == 2 + 8
    kept = [(await counts(database, tenant))["decisions"] for tenant in (usual, brief, lasting)]
    assert kept == [10, 4, 12]
    assert await keeper.sweep() == 0
    days = 0.0  # for ever
    await change_tenant(database, "b", retention_days=None)
    assert await keeper.sweep() == 0
    assert len(await rows(database, "SELECT * FROM requests")) == 36  # what it cost stays


async def test_ids_of_a_time_stand_between_those_made_before_and_after() -> None:
    before = new_id()
    bound = id_at()
    assert before < bound
    assert id_at(time.time() - 1) < before
