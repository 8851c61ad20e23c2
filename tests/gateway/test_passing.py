"""Moderations, audio and images pass through to a provider: their bytes as they are, their books kept all the same."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from gateway.answer import StreamAnswer
from gateway.byte_relay import BrokenOff
from gateway.config import parse
from gateway.config_check import ConfigError
from gateway.errors import InvalidRequestError
from gateway.wire.dialect import PlainDialect
from gateway.wire.passing import parse_audio, parse_passing
from tests.faults.misbehaving import Wire
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate, Line

pytestmark = pytest.mark.anyio

BOUNDARY = "----7MA4YWxk"
FORM = f'multipart/form-data; boundary="{BOUNDARY}"'
AUDIO = b"RIFF\r\n--not-a-boundary\r\n\r\n\x00\xff\xfe model whisper"
MP3 = bytes(range(256)) * 400
MODELS = """
[[model]]
name = "guard"
provider = "upstream"
upstream_name = "moderator"
kind = "moderation"
[[model]]
name = "whisper"
provider = "upstream"
upstream_name = "hearing"
kind = "transcription"
input_usd_per_mtok = 6.0
output_usd_per_mtok = 10.0
[[model]]
name = "tts/*"
provider = "upstream"
kind = "speech"
input_usd_per_mtok = 15.0
[[model]]
name = "painter"
provider = "upstream"
kind = "image"
"""
MODERATION = {"id": "modr-1", "model": "m", "results": [{"flagged": False, "categories": {}, "category_scores": {}}]}
HEARD = {"text": "hello", "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 101, "total_tokens": 115}}


@pytest.fixture
async def audio_gate(gate_with: OpenGate) -> Gate:
    gate = await gate_with(CONFIG + MODELS)
    gate.upstream.on("moderator", partial(answer_json, body=MODERATION))
    gate.upstream.on("painter", partial(answer_json, body={"created": 1, "data": [{"b64_json": "eA=="}]}))
    gate.upstream.on("voice", partial(answer_bytes, body=MP3))
    gate.upstream.on("cut-off", partial(answer_bytes, body=MP3, cut_at=100))
    return gate


async def answer_json(wire: Wire, body: Any) -> None:
    await wire.json(body)


async def answer_bytes(wire: Wire, body: bytes, kind: str = "audio/mpeg", cut_at: int | None = None) -> None:
    await wire.raw(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    for start in range(0, len(body), 1000):
        if cut_at is not None and start >= cut_at:
            wire.reset()
            return
        await wire.piece(body[start : start + 1000])
    await wire.end(done=False)


def form(*parts: tuple[str, bytes]) -> bytes:
    lines = []
    for name, data in parts:
        named = '; filename="a.wav"\r\nContent-Type: audio/wav' if name == "file" else ""
        lines.append(f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + data)
    return b"\r\n".join([*lines, f"--{BOUNDARY}--\r\n".encode()])


def named(disposition: str) -> bytes:
    """A form whose last part's name is spelt like this."""
    return form(("file", AUDIO), ("model", b"whisper"), ("x", b"other")).replace(b'name="x"', disposition.encode())


def hearing(content_type: str = FORM) -> Any:
    return partial(parse_audio, "audio.transcriptions", content_type)


SPEECH: Any = partial(parse_passing, "audio.speech", "")
MODERATIONS: Any = partial(parse_passing, "moderations", "guard")


async def test_a_moderation_passes_with_the_default_model(audio_gate: Gate) -> None:
    line = await audio_gate.ask({"input": "text", "later": 1.50}, MODERATIONS)
    assert line.json == MODERATION
    (sent,) = audio_gate.upstream.received
    assert (sent.path, sent.raw) == ("/v1/moderations", b'{"model":"moderator","input": "text", "later": 1.5}')
    record = audio_gate.record
    assert (record.endpoint, record.model, record.cost_nanousd) == ("moderations", "guard", 0)
    assert record.usage.estimated
    assert record.baseline_model is None


async def test_an_image_passes(audio_gate: Gate) -> None:
    line = await audio_gate.ask({"model": "painter", "prompt": "x"}, partial(parse_passing, "images.generations", ""))
    assert line.json["data"] == [{"b64_json": "eA=="}]


@pytest.mark.parametrize("first", ["file", "model"])
async def test_of_a_form_only_the_model_is_exchanged(audio_gate: Gate, first: str) -> None:
    audio_gate.upstream.on("hearing", partial(answer_json, body=HEARD))
    parts = [("file", AUDIO), ("model", b"whisper"), ("language", b"de"), ("model_hint", b"whisper")]
    body = form(*(parts if first == "file" else [parts[1], parts[0], *parts[2:]]))
    line = await audio_gate.ask(body, hearing())
    assert line.json == HEARD
    (sent,) = audio_gate.upstream.received
    assert sent.raw == body.replace(b'name="model"\r\n\r\nwhisper', b'name="model"\r\n\r\nhearing')
    assert (sent.path, sent.headers["content-type"]) == ("/v1/audio/transcriptions", FORM)
    record = audio_gate.record
    assert (record.usage.prompt_tokens, record.usage.completion_tokens) == (14, 101)
    assert record.cost_nanousd == 14 * 6000 + 101 * 10_000
    assert not record.usage.estimated


async def test_a_text_that_is_no_json_passes(audio_gate: Gate) -> None:
    srt = b"1\n00:00:00,000 --> 00:00:01,000\nhello\n"
    audio_gate.upstream.on("hearing", partial(answer_bytes, body=srt, kind="text/plain; charset=utf-8"))
    line = await audio_gate.ask(form(("file", AUDIO), ("model", b"whisper"), ("response_format", b"srt")), hearing())
    assert (line.body, line["content-type"]) == (srt, "text/plain; charset=utf-8")
    assert audio_gate.record.status == "ok"


async def test_a_streamed_transcription_passes_and_its_usage_is_booked(audio_gate: Gate) -> None:
    done = json.dumps({"type": "transcript.text.done", "text": "hello"} | HEARD).encode()
    events = b'data: {"type":"transcript.text.delta","delta":"hello"}\n\ndata: ' + done + b"\n\n"
    audio_gate.upstream.on("hearing", partial(answer_bytes, body=events, kind="text/event-stream"))
    line = await audio_gate.ask(form(("file", AUDIO), ("model", b"whisper"), ("stream", b"true")), hearing())
    assert line.body == events
    assert audio_gate.record.usage.total_tokens == 115


async def test_speech_is_streamed_as_it_comes(audio_gate: Gate) -> None:
    line = await audio_gate.ask({"model": "tts/voice", "input": "Hello there.", "voice": "alloy"}, SPEECH)
    assert line.body == MP3
    assert line["content-type"] == "audio/mpeg"
    assert line["x-tollhouse-model"] == "tts/voice"
    record = audio_gate.record
    assert (record.status, record.endpoint, record.usage.estimated) == ("ok", "audio.speech", True)
    assert record.cost_nanousd > 0


@pytest.mark.parametrize("behaviour", ["html", "no-content"])
async def test_what_is_no_speech_is_not_taken_for_it(audio_gate: Gate, behaviour: str) -> None:
    line = await audio_gate.ask({"model": f"tts/{behaviour}", "input": "Hello.", "voice": "alloy"}, SPEECH)
    assert (line.status, audio_gate.record.attempts[0].error_code) == (502, "no_answer")
    assert audio_gate.record.cost_nanousd == 0


async def test_bytes_that_break_off_never_look_whole(audio_gate: Gate) -> None:
    line = Line()
    with pytest.raises(BrokenOff):
        await audio_gate.ask({"model": "tts/cut-off", "input": "Hello.", "voice": "alloy"}, SPEECH, line=line)
    assert line.body == MP3[:1000]
    assert not line.closed
    assert (audio_gate.record.status, audio_gate.record.http_status) == ("error", 502)


class Stuck(Line):
    """Takes the headers, and then nothing."""

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()
        await super().send(message)


async def test_whoever_does_not_read_is_let_go(audio_gate: Gate) -> None:
    audio_gate.patience_s = 0.2
    async with asyncio.timeout(10):
        line = await audio_gate.ask({"model": "tts/voice", "input": "Hi.", "voice": "alloy"}, SPEECH, line=Stuck())
    assert not line.closed
    assert audio_gate.record.status == "cancelled"


async def test_whoever_leaves_in_mid_speech_is_booked(audio_gate: Gate) -> None:
    raw = json.dumps({"model": "tts/voice", "input": "Hello.", "voice": "alloy"}).encode()
    line = Line()
    told = await audio_gate.pipeline.answer(PlainDialect(SPEECH), raw, audio_gate.headers(), line.receive)
    assert isinstance(told, StreamAnswer)
    await told.source.close()
    assert audio_gate.record.status == "cancelled"


async def test_a_provider_that_fails_is_tried_again_with_the_whole_form(gate_with: OpenGate) -> None:
    gate = await gate_with(CONFIG.replace("max_retries = 0", "max_retries = 1", 1) + MODELS)

    async def second_time(wire: Wire) -> None:
        await wire.json(HEARD, status="200 OK" if len(gate.upstream.received) > 1 else "500 Oh no")

    gate.upstream.on("hearing", second_time)
    line = await gate.ask(form(("file", AUDIO), ("model", b"whisper")), hearing())
    assert line.json == HEARD
    first, second = gate.upstream.received
    assert first.raw == second.raw
    assert [attempt.status for attempt in gate.record.attempts] == ["error", "ok"]


@pytest.mark.parametrize(
    ("body", "content_type", "param"),
    [
        (form(("model", b"whisper")), FORM, "file"),
        (form(("file", AUDIO)), FORM, "model"),
        (form(("file", AUDIO), ("model", b"a"), ("model", b"b")), FORM, "model"),
        (form(("file", AUDIO), ("model", b"")), FORM, "model"),
        (form(("file", AUDIO), ("model", b"\xff")), FORM, "model"),
        (form(("file", AUDIO), ("model", b"a\nb")), FORM, "model"),
        (form(("file", AUDIO), ("model", b"whisper"))[:-30], FORM, None),
        (b"", FORM, None),
        (form(("file", b"x\n--" + BOUNDARY.encode() + b"\ny"), ("model", b"whisper")), FORM, None),
        (named('name="mod\\"el"'), FORM, None),
        (named("name*=utf-8''model"), FORM, None),
        (named('name="model"; name="language"'), FORM, None),
        (named('name="model"; NAME*0="language"'), FORM, None),
        (named('filename="model"'), FORM, None),
        (named('name="x"\nContent-Disposition: form-data; name="model"'), FORM, None),
        (named("").replace(f"--{BOUNDARY}\r\n".encode(), f"--{BOUNDARY}X\r\n".encode()), FORM, None),
        (named('filename="x; name=model"'), FORM, None),
        (named('filename="x"y"; name="model"'), FORM, None),
        (b"{}", "application/json", None),
    ],
)
def test_a_faulty_form_is_refused(body: bytes, content_type: str, param: str | None) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        hearing(content_type)(body)
    assert refused.value.param == param


async def test_where_no_model_can_the_capability_is_named(gate: Gate) -> None:
    line = await gate.ask({"model": "tts", "input": "x", "voice": "v"}, SPEECH)
    assert line.status == 400
    assert line.error["code"] == "missing_capability"
    assert "a speech model" in line.error["message"]
    with pytest.raises(InvalidRequestError, match="moderation model"):
        gate.house.snapshot.catalog.default("moderation")


async def test_a_model_is_for_what_it_is_for(audio_gate: Gate) -> None:
    line = await audio_gate.ask({"model": "whisper", "input": "x", "voice": "v"}, SPEECH)
    assert (line.status, line.error["code"]) == (404, "model_not_found")
    line = await audio_gate.ask({"model": "guard", "messages": [{"role": "user", "content": "x"}]})
    assert (line.status, line.error["code"]) == (404, "model_not_found")


def test_only_a_provider_of_openais_api_can_pass_things_through() -> None:
    text = '[[engine]]\nname = "e"\nmodel = "m"\n[[model]]\nname = "tts"\nengine = "e"\nkind = "speech"\n'
    with pytest.raises(ConfigError, match="passed through to a provider"):
        parse(text.encode())
