"""One JSON line a request, readable text for the rest, and no secret in either."""

import io
import json
import logging
import os
import sys

import msgspec
import pytest

from gateway.ledger.records import AttemptRecord, RequestRecord
from gateway.telemetry.log import RequestLine, configure_logging, log_request
from gateway.telemetry.masking import MaskingFormatter, mask, never_show
from gateway.wire.usage import Usage

RECORD = RequestRecord(
    id="0a1b", tenant_id="t", key_id="k", endpoint="chat.completions", requested_model="auto", model="m", tier="small",
    started_at=1_796_000_000.0, cache="hit-semantic", similarity=0.98765, usage=Usage(prompt_tokens=3),
    saved_by_cache_nanousd=1_234, user="a person's name", latency_ms=1.23456,
)  # fmt: skip


@pytest.fixture
def quiet_root():
    """The root logger as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level


def test_a_request_is_one_line_of_json(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    log_request(RECORD)
    out = capsysbinary.readouterr().out
    assert out.count(b"\n") == 1
    line = json.loads(out)
    assert line["time"] == "2026-11-30T00:53:20.000+00:00"
    assert (line["request_id"], line["cache"], line["similarity"]) == ("0a1b", "hit-semantic", 0.9877)
    assert (line["cost_usd"], line["saved_usd"], line["latency_ms"]) == ("0.0", "0.000001234", 1.235)


def test_each_field_says_what_the_record_does(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    attempt = AttemptRecord(
        id="a", request_id="0a1b", index=0, model="m", provider="p", upstream_model="u", started_at=1.0
    )
    log_request(
        msgspec.structs.replace(
            RECORD, tenant_id="t1", key_id="k1", status="error", http_status=502, error_code="timeout_read",
            provider="p", route_reason="rule 2", cache_reason="guard", stream=True, ttft_ms=2.34567, cost_nanousd=5,
            attempts=(attempt,), usage=Usage(prompt_tokens=3, completion_tokens=4, cached_tokens=2, estimated=True),
        )
    )  # fmt: skip
    assert json.loads(capsysbinary.readouterr().out) == {
        "time": "2026-11-30T00:53:20.000+00:00", "event": "request", "request_id": "0a1b", "tenant_id": "t1",
        "key_id": "k1", "endpoint": "chat.completions", "requested_model": "auto", "status": "error",
        "http_status": 502, "cache": "hit-semantic", "latency_ms": 1.235, "cost_usd": "0.000000005",
        "saved_usd": "0.000001234", "similarity": 0.9877, "ttft_ms": 2.346, "attempts": 1, "error_code": "timeout_read",
        "model": "m", "provider": "p", "tier": "small", "route": "rule 2", "cache_reason": "guard", "stream": True,
        "prompt_tokens": 3, "completion_tokens": 4, "cached_tokens": 2, "usage_estimated": True,
    }  # fmt: skip


def test_the_line_holds_nothing_personal(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    log_request(RECORD)
    assert b"a person's name" not in capsysbinary.readouterr().out
    assert not {"user", "text", "question"} & set(RequestLine.__struct_fields__)


def test_a_newline_in_a_name_does_not_make_a_second_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    log_request(msgspec.structs.replace(RECORD, requested_model='x"\n{"event":"forged"}'))
    assert capsysbinary.readouterr().out.count(b"\n") == 1


def test_a_reader_that_went_away_does_not_cost_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as stdout:  # noqa: PTH123  # a descriptor, not a path
        monkeypatch.setattr(sys, "stdout", stdout)
        log_request(RECORD)
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), write_end)  # so that closing it can flush


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("key sk-th-gyIbcRRi0npIHIe9ZR7perlY refused", "key sk-th-g*** refused"),
        ("sk-proj-abcdefghijklmnop", "sk-proj***"),
        ("Authorization: Bearer eyJhbGciOi.J9", "Authorization: Bearer ***"),
        ("postgresql+asyncpg://me:s3cr3t@db/books", "postgresql+asyncpg://me:***@db/books"),
        ("redis://:s3cr3t@cache:6379/0", "redis://:***@cache:6379/0"),
        ("http://127.0.0.1:8400/v1 task-list", "http://127.0.0.1:8400/v1 task-list"),
    ],
)
def test_secrets_are_masked(text: str, masked: str) -> None:
    assert mask(text) == masked


def test_a_traceback_is_masked_too() -> None:
    try:
        raise ValueError("bad key sk-th-gyIbcRRi0npIHIe9ZR7perlY")
    except ValueError:
        record = logging.LogRecord("tollhouse.x", logging.ERROR, "", 0, "failed", None, sys.exc_info())
    text = MaskingFormatter().format(record)
    assert "ValueError: bad key sk-th-g***" in text
    assert "gyIbcRRi" not in text


def test_our_own_secrets_are_masked_whatever_they_look_like() -> None:
    never_show(["0d3b5a6e9c41", "0d3b5a6e9c41ff00", "a+b(c)*d?", "short"])
    assert mask("key 0d3b5a6e9c41ff00, 0d3b5a6e9c41 or a+b(c)*d?: short") == "key ***, *** or ***: short"
    assert mask("sk-proj-abcdefghijklmnop") == "sk-proj***"


@pytest.mark.parametrize("cut", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_nobody_forges_a_line(cut: str) -> None:
    forged = "2026-11-30T06:00:00.000Z INFO tollhouse.audit: key revoked"
    record = logging.LogRecord("tollhouse.x", logging.WARNING, "", 0, "no such path: %s", (f"/{cut}{forged}",), None)
    assert not any(line.startswith("2026-11-30T06:00") for line in MaskingFormatter().format(record).splitlines())


def test_a_terminal_obeys_nobody() -> None:
    record = logging.LogRecord("tollhouse.x", logging.WARNING, "", 0, "no model %s", ("\x1b]0;title\x07\x9b2J",), None)
    assert MaskingFormatter().format(record).isprintable()


def test_libraries_do_not_narrate(quiet_root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging()
    logging.getLogger("httpx").info("HTTP Request: POST https://api.openai.com")
    logging.getLogger("tollhouse.build").info("models loaded")
    assert len(quiet_root.handlers) == 1
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("INFO tollhouse.build: models loaded")
