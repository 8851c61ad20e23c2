"""Two gateways over one PostgreSQL, killed at twenty random moments; the database goes for 30 s, a disk is full for 10.

A fault is a request that reached the upstream and has no row, a call that is not booked, and tokens that are not those
that the upstream told or sent.
"""

import asyncio
import random
import resource
import tempfile
from pathlib import Path

from tests.conftest import PostgresServer
from tests.support.audit import audit
from tests.support.books import CONFIG, Crowd, counting_upstream
from tests.support.server import Gateway

NUM_MOMENTS = 20
OUTAGE_AT, OUTAGE_S = 6, 30.0
FULL_DISK_AT, FULL_DISK_S = 13, 10.0
PATIENCE_S = 120.0


async def soak(minutes: float) -> list[str]:
    pause_s = minutes * 60 / NUM_MOMENTS
    postgres = PostgresServer()
    postgres.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return await _soak(Path(folder), postgres, pause_s)
    finally:
        postgres.remove()


async def _soak(folder: Path, postgres: PostgresServer, pause_s: float) -> list[str]:
    url, config = postgres.new_database(), folder / "config.toml"
    async with counting_upstream() as upstream:
        config.write_text(CONFIG.format(upstream=upstream.server.base_url, database=url))
        one, other = (Gateway(config, folder / name) for name in ("one", "other"))
        with one, other:
            key = await asyncio.to_thread(one.key, "soak")
            async with Crowd([one, other], key) as crowd:
                for moment in range(NUM_MOMENTS):
                    await asyncio.sleep(random.uniform(0.5, 1.5) * pause_s)
                    await _happens(moment, random.choice([one, other]), postgres)
                    print(f"moment {moment + 1}: {len(upstream.calls)} requests reached the upstream", flush=True)
            return await audit(url, upstream.calls, crowd.seen, PATIENCE_S)


async def _happens(moment: int, gateway: Gateway, postgres: PostgresServer) -> None:
    if moment == OUTAGE_AT:
        await asyncio.to_thread(postgres.stop)
        await asyncio.sleep(OUTAGE_S / 2)
        gateway.kill()
        await asyncio.sleep(OUTAGE_S / 2)
        await asyncio.to_thread(postgres.start)
    elif moment == FULL_DISK_AT:
        assert gateway.process is not None
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (2**14, -1))
        await asyncio.sleep(FULL_DISK_S)
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
        return  # what it could not write is in its memory: it is not killed before that is written
    else:
        gateway.kill()
    await asyncio.to_thread(gateway.start)
