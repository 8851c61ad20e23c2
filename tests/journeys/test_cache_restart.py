"""What a gateway has answered it still knows after a restart or a kill, and nothing of it once it was erased."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.in_process import CONFIG
from tests.support.server import Gateway

SECRET = "a question that nobody else asks"


@pytest.fixture
def proxy(upstream: MisbehavingUpstream, tmp_path: Path) -> Iterator[Gateway]:
    with Gateway.over(CONFIG.format(upstream=upstream.base_url), tmp_path) as running:
        yield running


def ask(gateway: Gateway, key: str) -> str:
    body = {"model": "probe/ok", "messages": [{"role": "user", "content": SECRET}]}
    status, headers, raw = gateway.post("/v1/chat/completions", body, key)
    assert status == 200, raw
    return headers["x-tollhouse-cache"]


def num_kept(gateway: Gateway) -> int:
    with sqlite3.connect(f"file:{gateway.home / 'cache.db'}?mode=ro", uri=True) as database:
        found: int = database.execute("SELECT count(*) FROM entries").fetchone()[0]
    database.close()
    return found


def wait_for(gateway: Gateway, wanted: int) -> None:
    until = time.monotonic() + 20
    while num_kept(gateway) != wanted:
        assert time.monotonic() < until, f"the file holds {num_kept(gateway)} entries, not {wanted}"
        time.sleep(0.05)


def test_an_answer_outlives_a_restart_and_a_kill_but_not_its_erasure(proxy: Gateway) -> None:
    key = proxy.key("acme")
    assert ask(proxy, key) == "miss"
    proxy.stop()
    proxy.start()
    assert ask(proxy, key) == "hit-exact"
    wait_for(proxy, 1)
    proxy.kill()
    proxy.start()
    assert ask(proxy, key) == "hit-exact"
    proxy.tollhouse("cache", "clear", "--tenant", "acme")
    wait_for(proxy, 0)
    proxy.stop()
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in proxy.home.glob("cache.db*"))
    proxy.start()
    assert ask(proxy, key) == "miss"
