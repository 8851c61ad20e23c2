"""What a passage leaves in the books: a row for the request, one for each attempt, exact money; and it lasts."""

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.in_process import CONFIG
from tests.support.server import Gateway

TIERS = """
[tier.small]
models = ["dead", "dear"]
"""


@pytest.fixture
def proxy(upstream: MisbehavingUpstream, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that only forwards: no engine, no embedder."""
    with Gateway.over(CONFIG.format(upstream=upstream.base_url), tmp_path) as running:
        yield running


def rows(gateway: Gateway, sql: str, wanted: int, seconds: float = 10.0) -> list[dict[str, Any]]:
    """The query's rows once there are as many as wanted."""
    until = time.monotonic() + seconds
    while True:
        with sqlite3.connect(gateway.home / "tollhouse.db") as database:
            database.row_factory = sqlite3.Row
            found = [dict(row) for row in database.execute(sql)]
        if len(found) >= wanted or time.monotonic() > until:
            assert len(found) == wanted, found
            return found
        time.sleep(0.05)


def body(model: str, text: str = "", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text or str(uuid.uuid4())}]} | fields


def test_a_miss_and_nine_hits_cost_one_request(proxy: Gateway) -> None:
    key = proxy.key("acme")
    for _ in range(10):
        assert proxy.post("/v1/chat/completions", body("probe/ok", "the same"), key)[0] == 200
    found = rows(proxy, "SELECT * FROM requests ORDER BY started_at", 10)
    assert [row["cache"] for row in found] == ["miss"] + ["hit-exact"] * 9
    assert [row["cost_nanousd"] for row in found] == [25_000] + [0] * 9
    assert [row["saved_by_cache_nanousd"] for row in found] == [0] + [25_000] * 9
    assert {row["baseline_cost_nanousd"] for row in found} == {250_000}
    assert {row["saved_by_routing_nanousd"] for row in found} == {225_000}
    assert len(rows(proxy, "SELECT * FROM attempts", 1)) == 1
    daily = rows(proxy, "SELECT * FROM v_tenant_costs_daily", 1)[0]
    assert (daily["tenant_name"], daily["num_requests"], daily["cost_nanousd"]) == ("acme", 10, 25_000)
    saved = rows(proxy, "SELECT * FROM v_tenant_savings", 1)[0]
    assert saved["cost_nanousd"] + saved["saved_nanousd"] == saved["baseline_cost_nanousd"] == 2_500_000
    printed = proxy.tollhouse("costs", "--tenant", "acme", "--by", "model")
    assert "0.000025" in printed
    assert "probe/ok" in printed


def test_a_fallback_is_one_request_with_two_attempts(proxy: Gateway) -> None:
    key = proxy.key("acme")
    proxy.config.write_text(proxy.config.read_text() + TIERS)
    time.sleep(1.2)  # an edit is noticed
    status, headers, _ = proxy.post("/v1/chat/completions", body("auto"), key)
    assert (status, headers["x-tollhouse-attempts"]) == (200, "2")
    request = rows(proxy, "SELECT * FROM requests", 1)[0]
    attempts = rows(proxy, "SELECT * FROM attempts ORDER BY attempt", 2)
    assert [(a["model"], a["status"], a["http_status"]) for a in attempts] == [
        ("dead", "error", 500),
        ("dear", "ok", 200),
    ]
    assert request["cost_nanousd"] == sum(a["cost_nanousd"] for a in attempts) == 250_000
    assert {a["request_id"] for a in attempts} == {request["id"]} == {headers["x-request-id"]}
    decision = rows(proxy, "SELECT * FROM decisions", 1)[0]
    assert (decision["request_id"], decision["tier"]) == (request["id"], "small")
    assert json.loads(decision["signals"])["features"]


@pytest.mark.parametrize("behaviour", ["cut", "short"])
def test_a_broken_stream_is_an_error_with_what_came(proxy: Gateway, behaviour: str) -> None:
    key = proxy.key("acme")
    status, _, raw = proxy.post("/v1/chat/completions", body(f"probe/{behaviour}", stream=True), key)
    assert status == 200
    assert b'"error"' in raw
    assert b"data: [DONE]" not in raw
    row = rows(proxy, "SELECT * FROM requests", 1)[0]
    assert (row["status"], row["estimated"]) == ("error", 1)
    assert row["completion_tokens"] > 0
    assert row["cost_nanousd"] > 0


def test_a_client_that_leaves_is_booked_as_cancelled(proxy: Gateway, upstream: MisbehavingUpstream) -> None:
    key = proxy.key("acme")
    before = len(upstream.of("silence"))
    with pytest.raises(TimeoutError):
        _post_and_leave(proxy, key, "probe/silence", 0.5)
    row = rows(proxy, "SELECT * FROM requests", 1)[0]
    assert (row["status"], row["http_status"]) == ("cancelled", 499)
    assert upstream.wait_until(lambda: upstream.of("silence")[before].hung_up_after_s is not None, 1.0)


def _post_and_leave(gateway: Gateway, key: str, model: str, seconds: float) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=seconds)
    try:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body(model)), headers)
        connection.getresponse()
    finally:
        connection.close()


def test_after_kill_9_every_request_that_reached_the_upstream_has_its_row(
    proxy: Gateway, upstream: MisbehavingUpstream
) -> None:
    key = proxy.key("acme")
    before = len(upstream.of("ok")) + len(upstream.of("silence"))
    answered: list[str] = []
    stop = threading.Event()

    def load(model: str) -> None:
        while not stop.is_set():
            try:
                status, headers, _ = proxy.post("/v1/chat/completions", body(model), key)
            except OSError:
                return
            if status == 200:
                answered.append(headers["x-request-id"])

    threads = [threading.Thread(target=load, args=(model,)) for model in ["probe/ok"] * 4 + ["probe/silence"] * 2]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    proxy.kill()
    stop.set()
    for thread in threads:
        thread.join()
    proxy.start()
    reached = len(upstream.of("ok")) + len(upstream.of("silence")) - before
    found = rows(proxy, "SELECT * FROM requests", reached)
    assert set(answered) <= {row["id"] for row in found}
    lost = [row for row in found if row["status"] == "lost"]
    assert len(lost) >= 1
    assert all(row["estimated"] for row in lost)
    assert len(rows(proxy, "SELECT DISTINCT request_id FROM attempts", reached)) == reached


def test_keys_are_nowhere_but_with_their_owner(proxy: Gateway) -> None:
    key = proxy.key("acme")
    for model in ("probe/ok", "probe/500", "probe/401", "nothing"):
        proxy.post("/v1/chat/completions", body(model), key)
    rows(proxy, "SELECT * FROM requests", 4)
    proxy.stop()
    for path in proxy.home.rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes(), path


def test_what_the_command_line_changes_bites_within_a_second(proxy: Gateway) -> None:
    key = proxy.key("acme")
    assert proxy.post("/v1/chat/completions", body("probe/ok"), key)[0] == 200
    proxy.tollhouse("tenants", "disable", "acme")
    time.sleep(1.0)
    assert proxy.post("/v1/chat/completions", body("probe/ok"), key)[0] == 401


def test_an_edited_config_is_taken_over_and_a_bad_one_is_not(proxy: Gateway) -> None:
    key = proxy.key("acme")
    good = proxy.config.read_text()
    proxy.config.write_text(good.replace("[cache]", "[cache]\nttl = 3"))
    time.sleep(1.2)
    assert proxy.post("/v1/chat/completions", body("probe/ok"), key)[0] == 200
    assert "cache.ttl: unknown key" in proxy.log
    proxy.config.write_text(good.replace('"probe/*"', '"other/*"'))
    time.sleep(1.2)
    assert proxy.post("/v1/chat/completions", body("probe/ok"), key)[0] == 404
    assert proxy.post("/v1/chat/completions", body("other/ok"), key)[0] == 200


def test_the_clients_harmless_headers_reach_the_upstream_and_no_others(
    proxy: Gateway, upstream: MisbehavingUpstream
) -> None:
    key = proxy.key("acme")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    proxy.post("/v1/chat/completions", body("probe/ok"), key, traceparent=trace, cookie="secret=1")
    seen = upstream.of("ok")[-1].headers
    assert seen["traceparent"] == trace
    assert "cookie" not in seen
    assert key not in str(seen)


def test_health_metrics_and_the_dashboard_answer(proxy: Gateway) -> None:
    key = proxy.key("acme")
    proxy.post("/v1/chat/completions", body("probe/ok"), key)
    assert json.loads(proxy.get("/health/live")[2]) == {"status": "ok"}
    assert json.loads(proxy.get("/health/ready")[2])["database"] == "ok"
    metrics = proxy.get("/metrics")[2].decode()
    assert 'tollhouse_attempts_total{model="probe/ok",provider="upstream",status="ok"} 1.0' in metrics
    assert b"<!doctype html>" in proxy.get("/dashboard")[2].lower()
    assert proxy.get("/dashboard/data")[0] == 401
    rows(proxy, "SELECT * FROM requests", 1)
    assert json.loads(proxy.get("/dashboard/data", key)[2])


def test_a_gateway_that_only_forwards_is_small(proxy: Gateway) -> None:
    import psutil

    assert proxy.process is not None
    process = psutil.Process(proxy.process.pid)
    heavy = "torch", "faiss", "numpy"
    assert not [each.path for each in process.memory_maps() if any(name in each.path for name in heavy)]
    assert process.memory_info().rss < 120_000_000
