"""The application itself, served in this process: whatever is refused has OpenAI's shape, an id, a count and a line."""

import gc
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.answer import StreamAnswer
from gateway.app import create_app
from gateway.front import Application
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
) -> AsyncIterator[Application]:
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


async def request(app: Application, method: str, path: str, body: bytes = b"") -> Line:
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
    await app(scope, line.receive, line.send)
    return line


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/chat/completions", b"{}", 401, "invalid_api_key"),
        ("POST", "/v1/chat/completions", b"x" * 2000, 413, "request_too_large"),
        ("GET", "/v1/chat/completions", b"", 405, "method_not_allowed"),
        ("HEAD", "/v1/embeddings", b"", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/responses", b"", 405, "method_not_allowed"),
        ("POST", "/v1/chat/completions/", b"{}", 401, "invalid_api_key"),  # by the router
        ("POST", "/v1/chat/completions//x", b"{}", 404, "unknown_url"),
        ("GET", "/v1/nothing", b"", 404, "unknown_url"),
        ("GET", "/v1/models", b"", 401, "invalid_api_key"),
    ],
)
async def test_whatever_is_refused_is_numbered_counted_and_logged(
    app: Application,
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
    assert (said[0]["method"], said[0]["path"], said[0]["http_status"]) == (method, path.rstrip("/"), status)
    exposition = (await request(app, "GET", "/metrics")).body.decode()
    assert f'tollhouse_refusals_total{{code="{code}",status="{status}"}} 1.0' in exposition


async def test_a_long_path_is_not_the_logs_problem(
    app: Application, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    line = await request(app, "GET", "/" + "x" * 5000)
    assert line.status == 404
    assert len(capsysbinary.readouterr().out) < 1000


async def test_a_bug_of_ours_is_told_as_one_before_the_router_too(
    app: Application, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app.state.pipeline, "answer", fail)
    line = await request(app, "POST", "/v1/chat/completions", b"{}")
    assert (line.status, line.error["code"]) == (500, "internal_error")
    theirs = await request(app, "POST", "/v1/messages", b"{}")
    assert (theirs.status, theirs.json["type"], theirs.json["error"]["type"]) == (500, "error", "api_error")
    assert theirs["request-id"] == theirs["x-request-id"]
    said = [json.loads(each) for each in capsysbinary.readouterr().out.splitlines()]
    assert [each["request_id"] for each in said] == [line["x-request-id"], theirs["x-request-id"]]


async def test_what_breaks_behind_the_first_byte_breaks_the_answer_off(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client hears of no second status, and the server of the failure: it closes the line."""

    class Broken(StreamAnswer):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise ZeroDivisionError

    async def answer(*_: Any, **__: Any) -> Broken:
        return Broken.__new__(Broken)

    monkeypatch.setattr(app.state.pipeline, "answer", answer)
    with pytest.raises(ZeroDivisionError):
        await request(app, "POST", "/v1/chat/completions", b"{}")
