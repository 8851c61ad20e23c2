"""Costs by tenant and day, model or tier; the lines sum to the total, and hits are free and say what they saved."""

from datetime import UTC, date, datetime

import pytest

from gateway.ledger.records import AttemptRecord, RequestRecord
from gateway.ledger.reports import costs, parse_since
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.tenants.errors import UnknownName
from gateway.tenants.registry import create_tenant
from gateway.wire.usage import Usage

DAYS = [datetime(2026, 11, day, 23, 59, 59, tzinfo=UTC) for day in (28, 29, 30)]


def record(number: int, tenant_id: str, day: datetime, **fields: object) -> RequestRecord:
    usage = Usage(prompt_tokens=100, completion_tokens=10, cached_tokens=20)
    values = {
        "usage": usage,
        "model": "m",
        "tier": "small",
        "cost_nanousd": 1000,
        "saved_by_routing_nanousd": 500,
    } | fields
    return RequestRecord(
        id=f"{number:032x}", tenant_id=tenant_id, key_id="k", endpoint="chat.completions", requested_model="auto",
        started_at=day.timestamp(), **values,
    )  # fmt: skip


@pytest.mark.anyio
async def test_one_miss_and_nine_hits_cost_one_request(database: Database) -> None:
    tenant = await create_tenant(database, "acme")
    miss = record(0, tenant.id, DAYS[0], cache="miss")
    call = AttemptRecord(
        id="a" * 32, request_id=miss.id, index=0, model="m", provider="p", upstream_model="u",
        started_at=miss.started_at, usage=miss.usage, cost_nanousd=1000,
    )  # fmt: skip
    hit = {"cache": "hit-semantic", "cost_nanousd": 0, "saved_by_cache_nanousd": 1000}
    hits = [record(number, tenant.id, DAYS[0], **hit) for number in range(1, 10)]
    await insert_entries(
        database,
        [RequestRecord(**{**{f: getattr(miss, f) for f in miss.__struct_fields__}, "attempts": (call,)}), *hits],
    )
    total = (await costs(database)).total
    assert (total.num_requests, total.num_hits) == (10, 9)
    assert (total.cost_nanousd, total.saved_by_cache_nanousd) == (1000, 9000)
    assert total.saved_by_routing_nanousd == 5000
    async with database.read() as connection:
        usage = (
            await connection.exec_driver_sql(
                "SELECT num_attempts, prompt_tokens, cost_nanousd FROM v_model_usage_daily"
            )
        ).all()
    assert [tuple(row) for row in usage] == [(1, 100, 1000)]  # the provider saw one request's tokens


@pytest.mark.anyio
async def test_groups_sum_to_the_total(database: Database) -> None:
    acme, beta = await create_tenant(database, "acme"), await create_tenant(database, "beta")
    await insert_entries(
        database,
        [
            record(1, acme.id, DAYS[0]),
            record(2, acme.id, DAYS[1], model="n", tier="large"),
            record(3, acme.id, DAYS[2], model=None, tier=None, status="error", cost_nanousd=0),
            record(4, beta.id, DAYS[2], model="n"),
            record(5, "gone", DAYS[2]),
        ],
    )
    by_day = await costs(database)
    assert [(row.tenant_name, row.group) for row in by_day.rows] == [
        ("acme", "2026-11-28"),
        ("acme", "2026-11-29"),
        ("acme", "2026-11-30"),
        ("beta", "2026-11-30"),
        ("gone", "2026-11-30"),
    ]
    by_model = await costs(database, by="model", tenant="acme")
    assert [(row.group, row.num_failed, row.cost_nanousd) for row in by_model.rows] == [
        ("", 1, 0), ("m", 0, 1000), ("n", 0, 1000),
    ]  # fmt: skip
    by_tier = await costs(database, by="tier", tenant="acme")
    assert [row.group for row in by_tier.rows] == ["", "large", "small"]
    assert by_model.total == by_tier.total
    assert by_day.total.cost_nanousd == 4000
    since = await costs(database, since=date(2026, 11, 30))
    assert [row.tenant_name for row in since.rows] == ["acme", "beta", "gone"]
    assert since.total.completion_tokens == 30
    empty = await costs(database, since=date(2027, 1, 1))
    assert (empty.rows, empty.total.num_requests) == ([], 0)
    with pytest.raises(UnknownName, match="no tenant named 'acne'"):
        await costs(database, tenant="acne")


def test_since_is_a_day_or_some_days_back() -> None:
    assert parse_since("2026-11-30") == date(2026, 11, 30)
    assert parse_since("7d", today=date(2026, 12, 1)) == date(2026, 11, 24)
    for nonsense in ("yesterday", "d", "-3d", "2026-13-01"):
        with pytest.raises(ValueError, match="neither a day"):
            parse_since(nonsense)
