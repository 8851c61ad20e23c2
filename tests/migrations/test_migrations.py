"""The revisions: up, down and up again on both databases, in step with the tables, and views that say the truth."""

import asyncio
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

import migrations
from gateway.ledger.records import AttemptRecord, RequestRecord
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.store.errors import StoreConfigError
from gateway.store.file_tables import metadata
from gateway.store.migrate import current_revision, downgrade_to, newest_revision, upgrade_to_head
from gateway.wire.usage import Usage

VIEWS = {"v_tenant_costs_daily", "v_tenant_costs_monthly", "v_tenant_savings", "v_model_usage_daily"}


def head() -> str:
    revision = ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head()
    assert revision is not None
    return revision


def differences(connection: Connection) -> list[object]:
    return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)


def test_the_newest_file_is_the_head() -> None:
    assert newest_revision() == head()


@pytest.mark.anyio
async def test_a_database_that_is_up_to_date_needs_no_alembic(database_url: str) -> None:
    database = Database(database_url)
    await database.open()
    async with database.read() as connection:
        assert await connection.run_sync(current_revision) == newest_revision()
    await database.aclose()
    code = f"""
import asyncio, sys
from gateway.store.database import Database

async def main() -> None:
    database = Database({database_url!r})
    await database.open()
    await database.aclose()
    assert "alembic" not in sys.modules

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.anyio
async def test_tables_and_revisions_agree(database_url: str) -> None:
    database = Database(database_url)
    await database.open()
    async with database.read() as connection:
        assert await connection.run_sync(differences) == []
        assert set(await connection.run_sync(lambda c: inspect(c).get_view_names())) >= VIEWS
    await database.aclose()


@pytest.mark.anyio
async def test_down_leaves_nothing_and_up_works_again(database_url: str) -> None:
    database = Database(database_url)
    await database.open()
    async with database.write() as connection:
        await connection.run_sync(downgrade_to, "base")
    async with database.read() as connection:
        assert await connection.run_sync(lambda c: inspect(c).get_table_names()) == ["alembic_version"]
        assert not VIEWS & set(await connection.run_sync(lambda c: inspect(c).get_view_names()))
    async with database.write() as connection:
        await connection.run_sync(upgrade_to_head)
        assert await connection.run_sync(differences) == []
    await database.aclose()


@pytest.mark.anyio
async def test_two_gateways_may_start_at_once(database_url: str) -> None:
    databases = [Database(database_url) for _ in range(4)]
    await asyncio.gather(*(database.open() for database in databases))
    async with databases[0].read() as connection:
        assert (await connection.execute(text("SELECT version_num FROM alembic_version"))).all() == [(head(),)]
        assert await connection.scalar(text("SELECT COUNT(*) FROM versions")) == 4
    for database in databases:
        await database.aclose()


def test_two_processes_may_start_at_once(database_url: str) -> None:
    code = (
        "import asyncio, sys; from gateway.store.database import Database\n"
        "async def main():\n"
        "    database = Database(sys.argv[1]); await database.open(); await database.aclose()\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", code, database_url]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


@pytest.mark.anyio
async def test_a_database_of_a_newer_version_is_left_alone(database_url: str) -> None:
    database = Database(database_url)
    await database.open()
    async with database.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreConfigError, match="newer Tollhouse"):
        await database.open()
    await database.aclose()


def request(number: int, started_at: datetime, **fields: object) -> RequestRecord:
    identifier = f"{number:032x}"
    usage = Usage(prompt_tokens=100, completion_tokens=10, cached_tokens=50)
    attempt = AttemptRecord(
        id=f"{number + 0x1000:032x}", request_id=identifier, index=0, model="m", provider="p", upstream_model="u",
        started_at=started_at.timestamp(), usage=usage, cost_nanousd=3, latency_ms=10.0, ttft_ms=4.0,
    )  # fmt: skip
    values = {"attempts": (attempt,), "model": "m", "tier": "small", "usage": usage, "cost_nanousd": 3} | fields
    return RequestRecord(
        id=identifier, tenant_id="t1", key_id="k1", endpoint="chat.completions", requested_model="auto",
        started_at=started_at.timestamp(), **values,
    )  # fmt: skip


@pytest.mark.anyio
async def test_views_count_days_in_utc_and_dollars_to_the_nano(database_url: str) -> None:
    database = Database(database_url)
    await database.open()
    late = datetime(2026, 11, 30, 23, 59, 59, 999_000, tzinfo=UTC)
    early = datetime(2026, 12, 1, 0, 0, 0, tzinfo=UTC)
    large = 123_456_789_012_345_678
    hit = {"cache": "hit-exact", "attempts": (), "cost_nanousd": 0, "saved_by_cache_nanousd": 3}
    await insert_entries(
        database,
        [
            request(1, late, cost_nanousd=large, baseline_cost_nanousd=large + 5, saved_by_routing_nanousd=5),
            request(2, early, status="error", http_status=502, saved_by_routing_nanousd=-3, baseline_cost_nanousd=0),
            request(3, early, **hit),
        ],
    )
    async with database.write() as connection:
        await connection.execute(
            text(
                "INSERT INTO tenants (id, name, capture, disabled, created_at)"
                " VALUES ('t1', 'acme', 'off', false, '2026-01-01 00:00:00')"
            )
        )
    async with database.read() as connection:
        daily = (await connection.execute(text("SELECT * FROM v_tenant_costs_daily ORDER BY day"))).all()
        assert [str(row.day) for row in daily] == ["2026-11-30", "2026-12-01"]
        assert [row.tenant_name for row in daily] == ["acme", "acme"]
        assert [row.num_requests for row in daily] == [1, 2]
        assert [row.num_failed_requests for row in daily] == [0, 1]
        assert [row.num_cache_hits for row in daily] == [0, 1]
        assert [row.cost_nanousd for row in daily] == [large, 3]
        assert [row.saved_by_routing_nanousd for row in daily] == [5, -3]
        if database.dialect == "postgresql":
            assert daily[0].day == date(2026, 11, 30)
            assert daily[0].cost_usd == Decimal("123456789.012345678")
        else:
            assert daily[0].cost_usd == pytest.approx(123456789.012345678)
        monthly = (await connection.execute(text("SELECT month, prompt_tokens FROM v_tenant_costs_monthly"))).all()
        assert sorted(monthly) == [("2026-11", 100), ("2026-12", 200)]
        savings = (await connection.execute(text("SELECT * FROM v_tenant_savings"))).one()
        assert (savings.num_requests, savings.num_requests_with_baseline, savings.saved_nanousd) == (3, 2, 5)
        usage = (await connection.execute(text("SELECT * FROM v_model_usage_daily ORDER BY day"))).all()
        assert [(row.num_attempts, row.cached_tokens, row.cost_nanousd) for row in usage] == [(1, 50, 3), (1, 50, 3)]
        assert usage[0].mean_latency_ms == 10.0
    await database.aclose()


def test_the_alembic_command_works_from_a_checkout(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    url = f"sqlite:///{tmp_path / 'by-command.db'}"
    for step in (["upgrade", "head"], ["check"], ["downgrade", "base"]):
        done = subprocess.run(
            [sys.executable, "-m", "alembic", "-x", f"url={url}", *step], cwd=root, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
