"""JSON can say one thing in many ways. What passes through keeps the way it was said in, both ways, byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.embeddings import parse_embedding
from tests.faults.misbehaving import Script, Wire
from tests.support.in_process import Gate, chat

pytestmark = pytest.mark.anyio
odd = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

NUMBERS = ["0", "-0", "1.0", "-0.0", "1e5", "1E+2", "1e-7", "0.1000", "9007199254740993", "12345678901234567890123"]
TEXTS = [
    '""',
    '"日本語 🙂"',
    '"\\u65e5\\u672C"',
    '"\\ud83d\\ude42"',
    '"\\/ \\b\\f\\t"',
    '"\\u0000\\u2028"',
    '"data: [DONE]"',
    '"\\"model\\":\\"probe/odd\\",\\"usage\\":null"',
    '"\\"finish_reason\\":\\"stop\\""',
]
KEYS = ['"x"', '"X"', '"\\u0078"', '"model"', '"usage"', '"error"', '"id"', '"created"', '"日"', '""']
SPACES = ["", "", " ", "\t", "  "]


def members(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The inside of an object whose keys may repeat one another."""
    spaces = st.sampled_from(SPACES)
    member = st.tuples(st.sampled_from(KEYS), spaces, spaces, values, spaces).map(
        lambda part: f"{part[0]}{part[1]}:{part[2]}{part[3]}{part[4]}"
    )
    return st.lists(member, max_size=3).map(",".join)


VALUES = st.recursive(
    st.sampled_from(["null", "true", "false", *NUMBERS, *TEXTS]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[ {' , '.join(parts)}]") | members(inner).map("{{{}}}".format)
    ),
    max_leaves=6,
)
STRINGS = st.sampled_from(TEXTS)
CONTENTS = st.sampled_from(["null", *TEXTS])
USER = '{"role":"user","content":"x"}'
CALL = '{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}'


class Road:
    """A gateway between us and an upstream of which we know every byte."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def sent(self, raw: str, parse: Any = parse_chat) -> bytes:
        """What the upstream gets of this body."""
        self._gate.upstream.received.clear()
        line = await self._gate.ask(raw.encode(), parse, cache_control="no-store, no-cache")
        assert line.status == 200, line.body
        return self._gate.upstream.of("ok")[-1].raw

    async def told(self, script: Script, **fields: Any) -> bytes:
        """What the client gets of what the upstream says."""
        self._gate.upstream.on("odd", script)
        line = await self._gate.ask(chat("probe/odd", **fields), cache_control="no-store, no-cache")
        assert line.status == 200, line.body
        return line.body


@pytest.fixture
def road(gate: Gate) -> Road:
    return Road(gate)


@odd
@given(first=VALUES, content=CONTENTS, inside=VALUES, last=VALUES, space=st.sampled_from([*SPACES, "\r\n "]))
async def test_a_chats_bytes(road: Road, first: str, content: str, inside: str, last: str, space: str) -> None:
    """Only the model's name changes."""
    history = f'{{"role":"assistant","x_vendor":{inside},"content":{content},"tool_calls":[{CALL}]}}'
    result = f'{{"role":"tool","tool_call_id":"c","content":{json.dumps(inside)}}}'
    raw = (
        f'{{{space}"x_first":{first},"messages"{space}:[{USER},{history},{result}],"temperature":1.0,"top_p":1e0,'
        f'"model":{space}"dear","stream":false,"x\\u005flast":{last},"seed":null{space}}}'
    )
    assert await road.sent(raw) == raw.replace('"dear"', '"ok"').encode()


@odd
@given(odd_value=VALUES, text=st.sampled_from(TEXTS[1:]))
async def test_bytes_of_the_other_endpoints(road: Road, odd_value: str, text: str) -> None:
    prompt = f'{{"x":{odd_value},"prompt":{text},"model":"dear","max_tokens":5,"temperature":0.0}}'
    assert await road.sent(prompt, parse_completion) == prompt.replace("dear", "ok").encode()
    embedding = f'{{"x":{odd_value},"input":[{text},"x"],"model":"embed/ok","user":null}}'
    assert await road.sent(embedding, parse_embedding) == embedding.encode()


@odd
@given(content=CONTENTS, inside=VALUES, outside=VALUES, space=st.sampled_from([*SPACES, "\r\n "]))
async def test_a_whole_answers_bytes(road: Road, content: str, inside: str, outside: str, space: str) -> None:
    message = f'{{"role":"assistant","content":{content},"x":{inside}}}'
    body = (
        f'{space}{{"x":{outside},"id":"c","choices"{space}:[{{"finish_reason":"stop","index":0,"message":{message}}}],'
        f'"created":1.0,"usage":{{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"x":{inside}}}}}{space}'
    ).encode()

    async def script(wire: Wire) -> None:
        await wire.json(body)

    assert await road.told(script) == body


@odd
@given(contents=st.lists(st.tuples(STRINGS, VALUES), min_size=1, max_size=4), outside=VALUES, asks=st.booleans())
async def test_a_streams_bytes(road: Road, contents: list[tuple[str, str]], outside: str, asks: bool) -> None:
    """All of its payloads as they came; but for what they tell of usage, to who did not ask."""
    deltas = [f'{{"content":{content},"x":{value}}}' for content, value in contents]
    choices = [f'{{"index":0,"delta":{delta},"finish_reason":null}}' for delta in deltas]
    choices.append('{"finish_reason":"stop","delta":{},"index":-0}')
    payloads = [f'{{"x":{outside}, "choices" :[{choice}]}}' for choice in choices]
    usage = f'{{"choices":[],"usage":{{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"x":{outside}}}}}'
    sent = [*payloads, usage]

    async def script(wire: Wire) -> None:
        await wire.start_events()
        for payload in sent:
            await wire.event(payload)
        await wire.end()

    if asks:
        payloads.append(usage)
    options = {"stream_options": {"include_usage": True}} if asks else {}
    body = await road.told(script, stream=True, **options)
    *events, _comment, done, end = body.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    assert events == [b"data: " + payload.encode() for payload in payloads]
