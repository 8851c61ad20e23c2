"""Usage, the end, and what of a stream the client may see."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.formats import OPENAI
from gateway.wire.sse import DONE
from gateway.wire.stream import StreamReader
from gateway.wire.usage import Usage, usage_object
from tests.conformance.openai_schemas import conforms

HEAD = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m"'


def chunk(content: str | None = "x", finish: str | None = None, index: int = 0, rest: str = "") -> bytes:
    delta = {} if content is None else {"content": content}
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return f'{HEAD},"choices":[{json.dumps(choice)}]{rest}}}'.encode()


def usage_chunk(usage: dict[str, Any], choices: str = "[]") -> bytes:
    return f'{HEAD},"choices":{choices},"usage":{json.dumps(usage)}}}'.encode()


USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 0}}


def fed(reader: StreamReader, payload: bytes) -> bytes | None:
    """What one payload that comes alone becomes."""
    return next(iter(reader.feed([payload])), None)


def test_a_client_that_asked_gets_every_byte() -> None:
    reader = StreamReader(client_wants_usage=True)
    payloads = [chunk(rest=',"usage":null'), chunk(None, "stop", rest=',"usage":null'), usage_chunk(USAGE), DONE]
    assert [fed(reader, payload) for payload in payloads] == payloads
    assert reader.usage == Usage(prompt_tokens=5, completion_tokens=7)
    assert reader.finished
    assert reader.done
    assert b'"cached_tokens": 0' in payloads[2]  # a zero stays, as it came


def test_a_client_that_did_not_ask_sees_no_usage() -> None:
    reader = StreamReader(client_wants_usage=False)
    assert fed(reader, chunk(rest=',"usage":null')) == chunk()
    assert fed(reader, chunk(rest=', "usage" : null ,"obfuscation":"ab"')) == chunk(rest=' ,"obfuscation":"ab"')
    assert fed(reader, chunk(None, "stop", rest=f',"usage":{json.dumps(USAGE)}')) == chunk(None, "stop")
    assert fed(reader, usage_chunk(USAGE)) is None
    assert fed(reader, DONE) == DONE
    assert reader.usage == Usage(prompt_tokens=5, completion_tokens=7)
    assert reader.finish_reasons == {0: "stop"}


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        (',"usage":null,"obfuscation":"aB3","x":5', ',"obfuscation":"aB3","x":5'),
        (',"usage":null,"x":{"usage":null}', ',"x":{"usage":null}'),
        (',"usage":null,"x":[1,{"usage":null,"y":1}]', ',"x":[1,{"usage":null,"y":1}]'),
        (',"x":{"a":1,"usage":null}', ',"x":{"a":1,"usage":null}'),
        (',"x":{"a":1,"usage":null,"b":2}', ',"x":{"a":1,"usage":null,"b":2}'),
        (',"usage":null,"x":"\\"usage"', ',"x":"\\"usage"'),
    ],
)
def test_only_the_chunks_own_usage_is_taken_out(rest: str, kept: str) -> None:
    assert fed(StreamReader(client_wants_usage=False), chunk(rest=rest)) == chunk(rest=kept)


def test_a_usage_member_in_front_is_taken_out_too() -> None:
    payload = b'{"usage":null,"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}'
    assert fed(StreamReader(client_wants_usage=False), payload) == payload.replace(b'"usage":null,', b"")


def test_texts_that_talk_of_usage_are_left_alone() -> None:
    reader = StreamReader(client_wants_usage=False)
    said = chunk('"usage":null} "usage": {"prompt_tokens": 1} "finish_reason":"stop" "error":{}')
    assert fed(reader, said) == said
    nested = chunk(rest=',"x":{"usage":null}')
    assert fed(reader, nested) == nested
    assert (reader.usage, reader.finish_reasons, reader.error) == (None, {}, None)


def test_running_totals_give_the_largest() -> None:
    reader = StreamReader(client_wants_usage=False)
    for number in (1, 2, 3):
        fed(reader, chunk(rest=f',"usage":{{"prompt_tokens":9,"completion_tokens":{number}}}'))
    fed(reader, usage_chunk({"prompt_tokens": 9, "completion_tokens": 0}))
    assert reader.usage == Usage(prompt_tokens=9, completion_tokens=3)


def test_every_choice_must_finish() -> None:
    reader = StreamReader(client_wants_usage=False, num_choices=2)
    fed(reader, chunk(None, "stop", index=1))
    assert not reader.finished
    fed(reader, chunk(None, "length", index=0))
    assert reader.finished
    assert reader.finish_reasons == {1: "stop", 0: "length"}


def test_an_empty_finish_reason_is_none() -> None:
    reader = StreamReader(client_wants_usage=False)
    fed(reader, chunk("x", ""))
    assert not reader.finished


def test_an_error_in_the_stream_is_no_end() -> None:
    reader = StreamReader(client_wants_usage=False)
    fed(reader, chunk(None, "stop"))
    broken = b'{"error":{"message":"out of memory","type":"server_error"}}'
    assert fed(reader, broken) == broken
    assert reader.error == {"message": "out of memory", "type": "server_error"}
    assert not reader.finished


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[]", b'{"usage":', b'{"choices":5,"usage":{}}', b'{"choices":[{"index":"x","finish_reason":"stop"}]}',
     b'"usage"', b'{"usage":null,"usage":1}', b'{"error":' + b"[" * 5000],
)  # fmt: skip
def test_garbage_is_passed_on_and_harms_nothing(payload: bytes) -> None:
    reader = StreamReader(client_wants_usage=True, collect=True)
    assert fed(reader, payload) == payload
    assert not reader.finished
    assert reader.payloads == [payload]


def test_usage_that_makes_no_sense_is_withheld_and_not_counted() -> None:
    reader = StreamReader(client_wants_usage=False)
    assert fed(reader, usage_chunk({"prompt_tokens": "many"})) is None
    assert fed(reader, usage_chunk({"prompt_tokens": -4})) is None
    assert reader.usage is None


def test_what_is_collected_is_what_came() -> None:
    reader = StreamReader(client_wants_usage=False, collect=True)
    came = [chunk("a", rest=',"usage":null'), chunk("b"), usage_chunk(USAGE), DONE]
    for payload in came:
        fed(reader, payload)
    assert reader.payloads == came[:3]
    assert reader.num_deltas == 2


def test_usage_of_whole_answers() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2}}
    answer = {"choices": [], "usage": USAGE | details}
    usage = OPENAI.read(json.dumps(answer).encode()).usage
    assert usage is not None
    assert usage == Usage(prompt_tokens=5, completion_tokens=7, cached_tokens=3, reasoning_tokens=2)
    assert usage.total_tokens == 12
    embeddings = b'{"data":[],"usage":{"prompt_tokens":4,"total_tokens":4}}'
    assert OPENAI.read(embeddings).usage == Usage(prompt_tokens=4)


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"usage":null}', b'{"usage":5}', b'{"usage":{"prompt_tokens":-1}}', b'{"usage":{"prompt_tokens":1.5}}',
     b'{"x":{"usage":{"prompt_tokens":1}}}'],
)  # fmt: skip
def test_no_usage_where_none_can_be_read(body: bytes) -> None:
    assert OPENAI.read(body).usage is None


def test_usage_is_written_as_openai_does() -> None:
    written = usage_object(Usage(prompt_tokens=4, completion_tokens=2))
    conforms(written, "CompletionUsage")
    assert written["prompt_tokens_details"] == {"cached_tokens": 0}
    assert written["total_tokens"] == 6


def test_the_larger_of_each_count() -> None:
    a, b = Usage(prompt_tokens=5, completion_tokens=1, estimated=True), Usage(prompt_tokens=4, completion_tokens=9)
    assert a.maximum(b) == Usage(prompt_tokens=5, completion_tokens=9)
    assert a.maximum(None) is a


PIECES = ("x", "", '"', "\\", "\n", 'say "usage":null', '"error"', '"finish_reason":"stop"', "ü", "a\\")
RESTS = ("", ',"usage":null', ',"usage":null,"obfuscation":"ab"', ',"x":{"usage":null}', ', "usage" : null')
told = st.one_of(
    st.builds(chunk, st.sampled_from(PIECES), st.just(None), st.integers(0, 1), st.sampled_from(RESTS)),
    st.builds(chunk, st.none(), st.sampled_from(("stop", "")), st.integers(0, 1), st.sampled_from(RESTS)),
    st.sampled_from([usage_chunk(USAGE), b'{"error":{"message":"hot"}}', b'{"b":{"c":1,"usage":null}\n}', b"{\n}"]),
)  # fmt: skip


@given(payloads=st.lists(told, max_size=12), wants_usage=st.booleans())
def test_payloads_that_come_together_become_what_they_become_alone(payloads: list[bytes], wants_usage: bool) -> None:
    alone, together = (StreamReader(client_wants_usage=wants_usage, collect=True) for _ in range(2))
    assert together.feed([*payloads, DONE]) == [kept for one in [*payloads, DONE] for kept in alone.feed([one])]
    for name in ("usage", "finish_reasons", "done", "error", "num_deltas", "payloads"):
        assert getattr(together, name) == getattr(alone, name)
