"""The application itself, served in this process: whatever is refused has OpenAI's shape, an id, a count and a line."""

import gc
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar

from gateway.app import create_app
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.in_process import CONFIG, Line

pytestmark = pytest.mark.anyio


@pytest.fixture
def process_as_before() -> Iterator[None]:
    """What an application sets for its whole process and beyond its own life: the root logger."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
async def app(
    anyio_backend: Any,
    upstream: MisbehavingUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    process_as_before: None,
) -> AsyncIterator[Litestar]:
    monkeypatch.setenv("TOLLHOUSE_HOME", str(tmp_path / "home"))
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.replace("{upstream}", upstream.base_url) + "\n[server]\nmax_body_mb = 0.001\n")
    application = create_app(config)
    async with application.lifespan():
        yield application


async def test_the_garbage_collector_is_calmed_as_long_as_the_application_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process_as_before: None
) -> None:
    monkeypatch.setenv("TOLLHOUSE_HOME", str(tmp_path / "home"))
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.replace("{upstream}", "http://localhost:9/v1"))
    before = gc.get_threshold()
    async with create_app(config).lifespan():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == 50_000
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


async def request(app: Litestar, method: str, path: str, body: bytes = b"") -> Line:
    class Asking(Line):
        asked = False

        async def receive(self) -> dict[str, Any]:
            if self.asked:
                return await super().receive()
            self.asked = True
            return {"type": "http.request", "body": body, "more_body": False}

    line = Asking()
    scope: Any = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8400), "headers": [(b"host", b"x"), (b"content-length", b"%d" % len(body))],
    }  # fmt: skip
    await app(scope, line.receive, line.send)  # type: ignore[arg-type]
    return line


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/chat/completions", b"{}", 401, "invalid_api_key"),
        ("POST", "/v1/chat/completions", b"x" * 2000, 413, "request_too_large"),
        ("GET", "/v1/chat/completions", b"", 405, "method_not_allowed"),
        ("GET", "/v1/nothing", b"", 404, "unknown_url"),
        ("GET", "/v1/models", b"", 401, "invalid_api_key"),
    ],
)
async def test_whatever_is_refused_is_numbered_counted_and_logged(
    app: Litestar,
    capsysbinary: pytest.CaptureFixture[bytes],
    method: str,
    path: str,
    body: bytes,
    status: int,
    code: str,
) -> None:
    line = await request(app, method, path, body)
    assert (line.status, line.error["code"]) == (status, code)
    said = [json.loads(each) for each in capsysbinary.readouterr().out.splitlines()]
    assert [(each["event"], each["request_id"]) for each in said] == [("refusal", line["x-request-id"])]
    assert (said[0]["method"], said[0]["path"], said[0]["http_status"]) == (method, path, status)
    exposition = (await request(app, "GET", "/metrics")).body.decode()
    assert f'tollhouse_refusals_total{{code="{code}",status="{status}"}} 1.0' in exposition


async def test_a_long_path_is_not_the_logs_problem(app: Litestar, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    line = await request(app, "GET", "/" + "x" * 5000)
    assert line.status == 404
    assert len(capsysbinary.readouterr().out) < 1000
