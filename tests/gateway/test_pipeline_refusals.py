"""Refusals at the gate: each with an id, counted, logged, and without a call."""

import json
from typing import Any

import pytest

from gateway.tenants.types import Limits
from tests.support.in_process import Gate, Line, chat

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (chat(), {"authorization": "Bearer sk-th-wrong"}, 401, "invalid_api_key"),
        (b"{not json", {}, 400, None),
        ({"model": "probe/ok"}, {}, 400, "missing_required_parameter"),
    ],
)
async def test_a_refusal_at_the_gate_has_an_id_and_is_counted_and_logged(
    fresh_gate: Gate,
    capsysbinary: pytest.CaptureFixture[bytes],
    body: Any,
    headers: dict[str, str],
    status: int,
    code: str | None,
) -> None:
    line = await fresh_gate.ask(body, **headers)
    assert (line.status, line.error["code"]) == (status, code)
    check_refusal(fresh_gate, line, capsysbinary.readouterr().out)
    assert fresh_gate.records == []
    assert fresh_gate.num_sent() == 0


def check_refusal(gate: Gate, line: Line, printed: bytes) -> None:
    assert line["x-request-id"]
    said = [json.loads(each) for each in printed.splitlines() if b'"refusal"' in each]
    assert len(said) == 1
    assert said[0]["event"] == "refusal"
    assert line["x-request-id"] in said[0].values()
    assert b"sk-th-" not in printed
    counted = gate.house.metrics.exposition().decode()
    (series,) = [each for each in counted.splitlines() if each.startswith("tollhouse_refusals_total{")]
    assert f'status="{line.status}"' in series
    assert f'code="{line.error["code"] or line.error["type"]}"' in series
    assert series.endswith(" 1.0")


async def test_a_request_too_many_is_refused_with_an_id(
    fresh_gate: Gate, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    key = await fresh_gate.tenant("narrow", Limits(requests_per_minute=1))
    assert (await fresh_gate.ask(chat(), key=key)).status == 200
    capsysbinary.readouterr()
    line = await fresh_gate.ask(chat(), key=key)
    assert (line.status, line.error["code"]) == (429, "rate_limit_exceeded")
    assert int(line["retry-after"]) > 0
    assert line["x-ratelimit-remaining-requests"] == "0"
    check_refusal(fresh_gate, line, capsysbinary.readouterr().out)


async def test_a_model_that_nobody_serves_is_refused(gate: Gate) -> None:
    line = await gate.ask(chat("nothing"))
    assert (line.status, line.error["code"], line.error["param"]) == (404, "model_not_found", "model")
    assert line["x-request-id"]


async def test_a_glob_of_a_provider_without_its_key_is_refused_by_the_variables_name(gate: Gate) -> None:
    line = await gate.ask(chat("locked/ok"))
    assert (line.status, line.error["code"]) == (404, "model_not_found")
    assert "A_KEY_THAT_NOBODY_SETS" in line.error["message"]
    assert gate.upstream.received == []
