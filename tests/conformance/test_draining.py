"""A gateway that is told to stop: what runs may finish, what comes is sent away, and the books are whole afterwards."""

import contextlib
import json
import signal
import socket
import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import CONFIG
from tests.conformance.raw_client import RawClient, Received
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.server import Gateway

USER = [{"role": "user", "content": "hello"}]


class Draining:
    """A gateway of the test's own, and clients whose answers are read by threads."""

    def __init__(self, gateway: Gateway, upstream: MisbehavingUpstream) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.key = gateway.key("acme")
        self.client = RawClient(gateway.base_url, self.key)
        self._threads = ThreadPoolExecutor()

    def ask(self, behaviour: str, *, stream: bool) -> "Future[Received]":
        """Returns once the request has reached the upstream."""
        before = len(self.upstream.of(behaviour))
        body = {"model": f"probe/{behaviour}", "messages": USER, "stream": stream}
        asked = self._threads.submit(self.client.call, "/chat/completions", body)
        assert self.upstream.wait_until(lambda: len(self.upstream.of(behaviour)) > before)
        return asked

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.gateway.process is not None
        self.gateway.process.send_signal(number)

    def exit_code(self) -> int:
        assert self.gateway.process is not None
        return self.gateway.process.wait(20)

    def rows(self) -> list[dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(self.gateway.home / "tollhouse.db")) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute("SELECT * FROM requests ORDER BY started_at")]


@pytest.fixture
def draining(upstream: MisbehavingUpstream, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Draining]:
    """`@pytest.mark.parametrize("draining", [grace_s], indirect=True)`."""
    text = f"[server]\nshutdown_grace_s = {request.param}\n{CONFIG}"
    with Gateway.over(text.format(upstream=upstream.base_url), tmp_path) as gateway:
        yield Draining(gateway, upstream)


@pytest.mark.parametrize("draining", [10.0], indirect=True)
def test_what_runs_finishes_while_what_comes_is_sent_away(draining: Draining) -> None:
    running = draining.ask("paced", stream=True)
    draining.signal()
    assert draining.upstream.wait_until(lambda: draining.gateway.get("/health/ready")[0] == 503)
    assert json.loads(draining.gateway.get("/health/ready")[2])["status"] == "draining"
    refused = draining.client.call("/chat/completions", {"model": "probe/ok", "messages": USER})
    assert (refused.status, refused.error["code"]) == (503, "shutting_down")
    assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
    for reading in ("/models", "/files", "/batches"):
        assert draining.gateway.get(f"/v1{reading}", draining.key)[0] == 200
    assert running.result(20).text == "01234567"
    assert draining.exit_code() == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", draining.gateway.port), 1)
    assert [(row["requested_model"], row["status"]) for row in draining.rows()] == [("probe/paced", "ok")]


@pytest.mark.parametrize("draining", [0.5], indirect=True)
def test_what_does_not_finish_is_cut_and_told_and_booked(draining: Draining) -> None:
    stream, whole = draining.ask("stall", stream=True), draining.ask("silence", stream=False)
    draining.signal(signal.SIGINT)
    assert draining.exit_code() == 0
    told = stream.result(20)
    assert told.status == 200
    assert told.chunks[-1]["error"]["code"] == "shutting_down"
    assert "[DONE]" not in told.events
    refused = whole.result(20)
    assert (refused.status, refused.error["code"]) == (503, "shutting_down")
    rows = draining.rows()
    assert {(row["status"], row["error_code"], row["http_status"]) for row in rows} == {("error", "shutting_down", 503)}
    assert len(rows) == 2
    for behaviour in ("stall", "silence"):
        request = draining.upstream.of(behaviour)[-1]
        assert draining.upstream.wait_until(lambda request=request: request.hung_up_after_s is not None, 2)


@pytest.mark.parametrize("draining", [60.0], indirect=True)
def test_a_second_signal_ends_it_at_once_and_the_next_start_books_what_ran(draining: Draining) -> None:
    asked = draining.ask("silence", stream=False)
    draining.signal()
    assert draining.upstream.wait_until(lambda: "stopping" in draining.gateway.log)
    draining.signal(signal.SIGINT)
    assert draining.exit_code() == 128 + signal.SIGINT
    with pytest.raises((IndexError, OSError)):
        asked.result(20)
    draining.gateway.start()
    assert draining.upstream.wait_until(lambda: len(draining.rows()) == 1)
    (row,) = draining.rows()
    assert (row["status"], row["requested_model"]) == ("lost", "probe/silence")
