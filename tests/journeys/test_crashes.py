"""Whatever happens to gateways, disk and database: who reached the upstream has one row, true to the token or to what
came. The long form, with twenty random moments, is a part of `make soak`.
"""

import asyncio
import json
import random
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.audit import audit, tell
from tests.support.books import CONFIG, CountingUpstream, Crowd, counting_upstream
from tests.support.server import Gateway

pytestmark = pytest.mark.anyio
PATIENCE_S = 30.0


@pytest.fixture
async def upstream() -> AsyncIterator[CountingUpstream]:
    async with counting_upstream() as counting:
        yield counting


def gateways(folder: Path, upstream: CountingUpstream, database: str, number: int = 1) -> list[Gateway]:
    """Replicas: each with a state folder of its own, all over one database."""
    config = folder / "config.toml"
    config.write_text(CONFIG.format(upstream=upstream.server.base_url, database=database))
    return [Gateway(config, folder / f"home-{index}") for index in range(number)]


async def restarted(gateway: Gateway) -> None:
    gateway.kill()
    await asyncio.to_thread(gateway.start)


async def test_kill_9_under_load(upstream: CountingUpstream, tmp_path: Path, sqlite_url: str) -> None:
    (gateway,) = gateways(tmp_path, upstream, sqlite_url)
    with gateway:
        async with Crowd([gateway], await asyncio.to_thread(gateway.key, "acme")) as crowd:
            for _ in range(2):
                await asyncio.sleep(random.uniform(0.5, 1.5))
                await restarted(gateway)
            await asyncio.sleep(0.5)
        faults = await audit(sqlite_url, upstream.calls, crowd.seen, PATIENCE_S)
    assert not faults, tell(faults)
    assert len(upstream.calls) > 20


async def test_two_replicas_a_database_that_goes_and_one_that_dies_meanwhile(
    upstream: CountingUpstream, tmp_path: Path, postgres_server: Any
) -> None:
    url = postgres_server.new_database()
    one, other = gateways(tmp_path, upstream, url, 2)
    with one, other:
        async with Crowd([one, other], await asyncio.to_thread(one.key, "acme")) as crowd:
            await asyncio.sleep(1.5)  # until both know the key
            await asyncio.to_thread(postgres_server.stop)
            await asyncio.sleep(2.0)
            status, _, told = await asyncio.to_thread(one.get, "/health/ready")
            assert (status, json.loads(told)["database"]) == (200, "away")  # it still answers whom it knows
            other.kill()
            await asyncio.sleep(1.0)
            await asyncio.to_thread(postgres_server.start)
            await asyncio.to_thread(other.start)
            await asyncio.sleep(0.5)
        faults = await audit(url, upstream.calls, crowd.seen, PATIENCE_S)
    assert not faults, tell(faults)
    assert len(upstream.calls) > 20


async def test_a_full_disk(upstream: CountingUpstream, tmp_path: Path, sqlite_url: str) -> None:
    """No file may grow: journal, database and log alike. (A limit on the process; it fails as a full disk does.)"""
    (gateway,) = gateways(tmp_path, upstream, sqlite_url)
    with gateway:
        async with Crowd([gateway], await asyncio.to_thread(gateway.key, "acme")) as crowd:
            await asyncio.sleep(1.0)
            assert gateway.process is not None
            resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (_journal_bytes(gateway), -1))
            await asyncio.sleep(2.0)
            resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
            await asyncio.sleep(0.5)
        faults = await audit(sqlite_url, upstream.calls, crowd.seen, PATIENCE_S)
        assert not faults, tell(faults)
        assert "the journal can't be written" in gateway.log
        assert "the journal is written again" in gateway.log
    assert len(upstream.calls) > 20
    assert list((gateway.home / "journal").iterdir()) == []  # nothing was left behind


def _journal_bytes(gateway: Gateway) -> int:
    return max(path.stat().st_size for path in (gateway.home / "journal").rglob("*.journal"))
