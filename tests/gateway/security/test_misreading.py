"""What two readers could read in two ways: nobody is asked for other things than were judged and priced here."""

import json
from typing import Any

import pytest

from gateway.config import parse
from gateway.config_check import ConfigError
from gateway.errors import InvalidRequestError
from gateway.wire.chat import parse_chat
from tests.faults.misbehaving import Wire
from tests.faults.misbehaviours import STOP, chunk
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate, chat

pytestmark = pytest.mark.anyio

KEY = "Zq8-own.key+of/the=operator"


@pytest.mark.parametrize("name", ["Model", "MODEL", "Max_tokens", "MAX_TOKENS", "N", "\u017ftream", "top_\u212a"])
def test_a_known_name_in_another_case_is_refused(name: str) -> None:
    """As Go's encoding/json would read it: with Unicode's case folding, the long s and the Kelvin sign included."""
    body = json.dumps(chat() | {name: 1}, ensure_ascii=False).encode()
    with pytest.raises(InvalidRequestError, match="lower case"):
        parse_chat(body)


def test_unknown_names_may_be_written_as_one_likes() -> None:
    parse_chat(json.dumps(chat() | {"vendorOption": 1, "X": 2, "ÜBER": 3}).encode())


@pytest.mark.parametrize("model", ["sk-th-" + "a" * 43, "openai/sk-proj-0123456789abcdef"])
async def test_a_key_in_the_place_of_a_model_stays_out_of_the_books(gate: Gate, model: str) -> None:
    line = await gate.ask(chat(model))
    assert (line.status, line.error["param"]) == (400, "model")
    assert gate.records == []
    assert model.encode() not in line.body


@pytest.mark.parametrize("text", ["a = " + "[" * 50_000, "a = " + "{b = " * 50_000])
def test_a_config_that_is_nested_too_deeply_is_a_faulty_config(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text.encode())


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "422 Unprocessable Content", "429 Too Many"])
async def test_an_upstream_that_repeats_our_key_is_not_quoted(
    gate_with: OpenGate, monkeypatch: pytest.MonkeyPatch, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPERATORS_KEY", KEY)
    gate = await gate_with(CONFIG.replace('name = "upstream"', 'name = "upstream"\napi_key_env = "OPERATORS_KEY"', 1))

    async def tell(wire: Wire) -> None:
        await wire.json({"error": {"message": f"no such key: {wire.request.headers['authorization']}"}}, status)

    gate.upstream.on("telltale", tell)
    line = await gate.ask(chat("probe/telltale"))
    assert line.status == 502
    told: list[Any] = [line.body.decode(), line.headers, await gate.rows("SELECT * FROM attempts"), caplog.text]
    assert KEY not in repr(told)


async def test_what_an_upstream_calls_its_refusal_in_a_stream_does_not_go_into_the_books(gate: Gate) -> None:
    """A code is any text that the upstream likes, a key among them; the client alone is told."""

    async def refuse(wire: Wire) -> None:
        await wire.json({"error": {"message": "no", "code": "sk-" + "x" * 5000}}, "400 Bad Request")

    gate.upstream.on("late-refusal", refuse)
    await gate.ask(chat("probe/late-refusal", stream=True))
    assert gate.record.error_code is not None
    assert len(gate.record.error_code) < 30


@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_that_is_a_word_may_be_said(
    gate_with: OpenGate, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """Servers of one's own take any: nothing is secret about it."""
    monkeypatch.setenv("OPERATORS_KEY", "harbour")
    gate = await gate_with(CONFIG.replace('name = "upstream"', 'name = "upstream"\napi_key_env = "OPERATORS_KEY"', 1))

    async def say(wire: Wire) -> None:
        if not stream:
            await wire.json({"error": {"message": "no such harbour"}}, "400 Bad Request")
            return
        await wire.start_events()
        for event in (chunk({"content": "harbour"}), STOP):
            await wire.event(event)
        await wire.end()

    gate.upstream.on("says", say)
    line = await gate.ask(chat("probe/says", stream=stream))
    assert (line.status, b"harbour" in line.body) == (200 if stream else 400, True)
