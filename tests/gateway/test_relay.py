"""Streams: bytes as they come, and books that are right however a stream ends."""

import asyncio
import json
from typing import Any

import pytest

from gateway.answer import StreamAnswer
from gateway.relay import MAX_COLLECTED_BYTES, Relay
from gateway.tenants.types import Limits
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.dialect import PlainDialect, PlainVoice
from tests.faults.misbehaving import Script, Wire
from tests.faults.misbehaviours import STOP, TOKEN, USAGE, chunk
from tests.support.in_process import Gate, Line, chat

pytestmark = pytest.mark.anyio


def told(line: Line) -> Any:
    """The error event that a broken stream ends with; nothing after it, [DONE] least of all."""
    assert b"data: [DONE]" not in line.body
    last = line.body.strip().rpartition(b"data: ")[2]
    return json.loads(last)["error"]


async def test_a_stream_passes_and_its_price_stands_before_its_end(gate: Gate) -> None:
    line = await gate.ask(chat(stream=True))
    assert (line.status, line.closed) == (200, True)
    assert line["content-type"] == "text/event-stream; charset=utf-8"
    assert line["x-request-id"] == gate.record.id
    assert (line["x-tollhouse-model"], line["x-tollhouse-attempts"]) == ("probe/ok", "1")
    assert line.text == "xx"
    assert line.body.endswith(b": tollhouse cost-usd=0.000025 saved-usd=0.000225\n\ndata: [DONE]\n\n")


async def test_usage_is_asked_for_always_and_shown_to_those_who_asked(gate: Gate) -> None:
    plain = await gate.ask(chat(stream=True, temperature=1.5))
    asked = await gate.ask(chat(stream=True, temperature=1.5, stream_options={"include_usage": True}))
    assert all(received.json["stream_options"] == {"include_usage": True} for received in gate.upstream.of("ok"))
    assert b"usage" not in plain.body
    assert asked.events[-1]["usage"]["total_tokens"] == 18
    for record in gate.records:
        assert (record.usage.prompt_tokens, record.usage.completion_tokens, record.usage.estimated) == (11, 7, False)
        assert record.cost_nanousd == record.attempts[0].cost_nanousd == 25_000


async def test_a_stream_is_booked_before_its_last_byte_leaves(gate: Gate) -> None:
    settled_at_the_end: list[int] = []

    class Watching(Line):
        async def send(self, message: dict[str, Any]) -> None:
            if b"[DONE]" in message.get("body", b""):
                settled_at_the_end.append(len(gate.records))
            await super().send(message)

    await gate.ask(chat(stream=True), line=Watching())
    assert settled_at_the_end == [1]


async def test_the_first_token_is_timed(gate: Gate) -> None:
    await gate.ask(chat("probe/paced", stream=True))
    record = gate.record
    assert record.ttft_ms is not None
    assert record.ttft_ms < record.latency_ms - 400  # eight pieces, a tenth of a second apart
    assert record.attempts[0].ttft_ms is not None


async def test_a_stream_without_usage_is_charged_what_passed(gate: Gate) -> None:
    body = chat("probe/no-done", stream=True)
    line = await gate.ask(body)
    assert line.text == "x"
    assert gate.record.status == "ok"
    assert gate.record.usage.estimated
    assert gate.record.usage.completion_tokens == 2
    assert gate.record.usage.prompt_tokens == len(json.dumps(body)) // 4


async def test_a_streamed_answer_is_kept_whole(gate: Gate) -> None:
    await gate.ask(chat(stream=True))
    whole = await gate.ask(chat())
    assert whole["x-tollhouse-cache"] == "hit-exact"
    assert whole.json["choices"][0]["message"]["content"] == "xx"
    assert gate.num_sent() == 1


async def test_text_completions_stream_too(gate: Gate) -> None:
    async def script(wire: Wire) -> None:
        await wire.start_events()
        for text, finish in (("Mee", None), ("r", "stop")):
            await wire.event({"choices": [{"index": 0, "text": text, "finish_reason": finish}], "object": "x"})
        await wire.end()

    gate.upstream.on("text-stream", script)
    body = {"model": "probe/text-stream", "prompt": "The sea is", "stream": True}
    line = await gate.ask(body, parse_completion)
    assert "".join(event["choices"][0]["text"] for event in line.events) == "Meer"
    again = await gate.ask(body | {"stream": False}, parse_completion)
    assert (again["x-tollhouse-cache"], again.json["choices"][0]["text"]) == ("hit-exact", "Meer")


# Streams that break.


@pytest.mark.parametrize(
    ("model", "code", "http_status"),
    [
        ("probe/cut", "protocol_error", 502),
        ("probe/short", "protocol_error", 502),
        ("hasty/stall", "timeout", 502),
        ("hasty/drip", "timeout", 502),  # always something, never anything: the limit of the whole
        ("probe/no-json", "protocol_error", 502),
    ],
)
async def test_a_broken_stream_says_so_and_is_charged_what_passed(
    gate: Gate, model: str, code: str, http_status: int
) -> None:
    line = await gate.ask(chat(model, stream=True))
    assert (line.status, line.closed) == (200, True)
    assert told(line)["code"] == code
    record = gate.record
    assert (record.status, record.http_status, record.error_code) == ("error", http_status, code)
    assert record.usage.estimated
    assert record.usage.completion_tokens == 4
    assert record.cost_nanousd == record.attempts[0].cost_nanousd > 0
    assert (record.attempts[0].status, record.saved_by_routing_nanousd) == ("error", 0)


async def test_an_upstreams_own_error_event_passes_once(gate: Gate) -> None:
    line = await gate.ask(chat("probe/error-event", stream=True))
    assert told(line)["message"] == "overheated"
    assert line.body.count(b'"error"') == 1
    assert (gate.record.status, gate.record.error_code) == ("error", "upstream_stream_error")
    assert gate.record.usage.estimated


@pytest.mark.parametrize("behaviour", ["cut", "short", "error-event", "length"])
async def test_what_is_not_whole_is_never_kept(gate: Gate, behaviour: str) -> None:
    for _ in range(2):
        line = await gate.ask(chat(f"probe/{behaviour}", stream=True))
        assert (line.status, line["x-tollhouse-cache"]) == (200, "miss")
    assert gate.num_sent(behaviour) == 2


async def test_usage_of_the_first_chunk_alone_does_not_hide_what_followed(gate: Gate) -> None:
    early = {"prompt_tokens": 11, "completion_tokens": 1, "total_tokens": 12}

    async def script(wire: Wire) -> None:
        await wire.start_events()
        await wire.event(chunk({"role": "assistant", "content": "x"}, usage=early))
        for _ in range(40):
            await wire.event(TOKEN)
        await asyncio.sleep(0.1)
        wire.reset()

    gate.upstream.on("early-usage", script)
    line = await gate.ask(chat("probe/early-usage", stream=True))
    assert told(line)["code"] == "protocol_error"
    usage = gate.record.usage
    assert usage.estimated
    assert usage.completion_tokens == 41
    assert usage.prompt_tokens >= 11
    assert gate.record.cost_nanousd == usage.prompt_tokens * 1000 + usage.completion_tokens * 2000


async def test_a_fault_of_our_own_in_mid_stream_tells_no_secrets(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("an inner secret")

    monkeypatch.setattr(PlainVoice, "events", broken)
    line = await gate.ask(chat(stream=True))
    assert told(line)["code"] == "internal_error"
    assert b"secret" not in line.body
    assert (gate.record.status, gate.record.http_status) == ("error", 500)


# Clients that leave.


async def test_a_client_that_leaves_in_mid_stream_is_charged_what_passed(gate: Gate) -> None:
    line = await gate.ask(chat("probe/paced", stream=True), line=Line(leaves_after=b'"2"'))
    assert not line.closed
    await gate.until(lambda: gate.upstream.of("paced")[0].hung_up_after_s is not None)
    record = gate.record
    assert (record.status, record.http_status, record.error_code) == ("cancelled", 499, "client_closed_request")
    assert record.usage.estimated
    assert 3 <= record.usage.completion_tokens < 9
    assert record.cost_nanousd > 0


async def test_what_was_cut_off_saved_nothing(gate: Gate) -> None:
    await gate.ask(chat("probe/paced", stream=True), line=Line(leaves_after=b'"2"'))
    assert (gate.record.status, gate.record.saved_by_routing_nanousd) == ("cancelled", 0)
    assert gate.record.saved_by_cache_nanousd == 0


@pytest.mark.parametrize("breaks_at", [0, 1, 2])
async def test_a_connection_that_breaks_settles_everything(gate: Gate, breaks_at: int) -> None:
    key = await gate.tenant("narrow", Limits(concurrent_requests=1))
    with pytest.raises(OSError, match="gone"):
        await gate.ask(chat("probe/paced", stream=True), key=key, line=Line(breaks_at=breaks_at))
    assert gate.record.status == "cancelled"
    assert gate.record.usage.estimated
    await gate.until(lambda: gate.upstream.of("paced")[0].hung_up_after_s is not None)
    assert (await gate.ask(chat(), key=key)).status == 200


async def test_a_client_that_left_before_the_first_byte_settles_everything(gate: Gate) -> None:
    key = await gate.tenant("narrow", Limits(concurrent_requests=1))
    line = Line(leaves_after=b"")
    await gate.ask(chat("probe/paced", stream=True), key=key, line=line)
    assert gate.record.status == "cancelled"
    assert (await gate.ask(chat(), key=key)).status == 200


async def stream_of(gate: Gate, script: Script, key: str | None = None) -> StreamAnswer:
    gate.upstream.on("scripted", script)
    raw = json.dumps(chat("probe/scripted", stream=True)).encode()
    answer = await gate.pipeline.answer(PlainDialect(parse_chat), raw, gate.headers(key), Line().receive)
    assert isinstance(answer, StreamAnswer)
    return answer


async def forever(wire: Wire) -> None:
    await wire.start_events()
    for _ in range(1000):
        await wire.event(TOKEN, 0.02)


async def test_a_stream_that_is_never_begun_can_be_closed(gate: Gate) -> None:
    key = await gate.tenant("narrow", Limits(concurrent_requests=1))
    answer = await stream_of(gate, forever, key)
    assert gate.records == []
    for _ in range(2):  # once is enough, twice does no harm
        await answer.source.close()
    assert (gate.record.status, gate.record.error_code) == ("cancelled", "client_closed_request")
    await gate.until(lambda: gate.upstream.of("scripted")[0].hung_up_after_s is not None)
    assert (await gate.ask(chat(), key=key)).status == 200


async def test_a_whole_stream_is_settled_once(gate: Gate) -> None:
    async def script(wire: Wire) -> None:
        await wire.start_events()
        await wire.event(TOKEN)
        await wire.event(STOP)
        await wire.event(chunk(usage=USAGE))
        await wire.end()

    answer = await stream_of(gate, script)
    line = Line()
    await answer({}, line.receive, line.send)
    await answer.source.close()
    assert (gate.record.status, gate.record.usage.completion_tokens) == ("ok", 7)


# What is kept in memory.


async def test_what_outgrows_the_cache_is_no_longer_collected(gate: Gate) -> None:
    size, sent = 600_000, 12
    held: list[int] = []

    async def script(wire: Wire) -> None:
        await wire.start_events()
        for _ in range(sent):
            await wire.event(chunk({"content": "x" * size}))
        await wire.event(STOP)
        await wire.end()

    answer = await stream_of(gate, script)
    relay = answer.source
    assert isinstance(relay, Relay)

    class Watching(Line):
        async def send(self, message: dict[str, Any]) -> None:
            held.append(sum(map(len, relay._reader.payloads)))
            await super().send(message)

    line = Watching()
    await answer({}, line.receive, line.send)
    assert len(line.text) == size * sent
    assert 0 < max(held) <= MAX_COLLECTED_BYTES + size
    assert held[-1] == 0
    assert gate.record.status == "ok"
