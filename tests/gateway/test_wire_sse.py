"""Server-sent events, however the network cuts them and however loosely the server writes them."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.sse import DONE, EventTooLargeError, SseParser, frame, frames


def parse(*chunks: bytes) -> list[bytes]:
    parser = SseParser()
    return [payload for chunk in chunks for payload in parser.feed(chunk)] + parser.close()


def test_whole_events_in_one_chunk() -> None:
    assert parse(b'data: {"a":1}\n\ndata: {"b":2}\n\n', b"data: [DONE]\n\n") == [b'{"a":1}', b'{"b":2}', DONE]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("colon", [b"data:", b"data: "])
def test_line_ends_and_the_space_are_free(end: bytes, colon: bytes) -> None:
    stream = b"".join(colon + payload + end + end for payload in (b"1", b"2", DONE))
    assert parse(stream) == [b"1", b"2", DONE]
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == [b"1", b"2", DONE]


def test_only_one_space_belongs_to_the_field() -> None:
    assert parse(b"data:  x\n\n") == [b" x"]


def test_comments_and_other_fields_are_not_data() -> None:
    stream = b': PROCESSING\n\nevent: message\nid: 7\nretry: 10\ndata: {"a":1}\n: in between\n\nfoo\n\n: end\n\n'
    assert parse(stream) == [b'{"a":1}']


def test_data_lines_of_one_event_are_joined() -> None:
    assert parse(b"data: a\ndata: b\ndata\ndata: c\n\n") == [b"a\nb\n\nc"]


def test_an_event_without_data_is_none() -> None:
    assert parse(b"data\n\ndata:\n\ndata: \n\nevent: ping\n\ndata: x\n\n") == [b"x"]


def test_a_byte_order_mark_is_skipped() -> None:
    assert parse(b"\xef\xbb", b"\xbfdata: x\n\n") == [b"x"]


def test_characters_torn_at_chunks_arrive_whole() -> None:
    text = "日本語 🙂"
    stream = frame(json.dumps({"content": text}, ensure_ascii=False).encode())
    payloads = parse(*(stream[i : i + 3] for i in range(0, len(stream), 3)))
    assert [json.loads(payload)["content"] for payload in payloads] == [text]


def test_a_carriage_return_at_a_chunk_end_is_one_line_end() -> None:
    assert parse(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"a\nb"]


def test_the_blank_line_after_done_may_be_missing() -> None:
    assert parse(b"data: x\n\ndata: [DONE]") == [b"x", DONE]
    assert parse(b"data: x\n\ndata: [DONE]\n") == [b"x", DONE]
    assert parse(b"data: x\n\ndata: y\n") == [b"x", b"y"]


def test_a_torn_event_at_the_end_is_dropped() -> None:
    assert parse(b'data: x\n\ndata: {"cut":"her') == [b"x"]
    assert parse(b'data: x\n\ndata: 1\ndata: {"cut') == [b"x"]


@pytest.mark.parametrize("chunk", [b"x" * 100, b"data\n", b"data: " + b"x" * 99 + b"\n"])
def test_an_endless_event_is_given_up(chunk: bytes) -> None:
    parser = SseParser(max_event_bytes=1000)
    fed = 0
    with pytest.raises(EventTooLargeError):  # noqa: PT012 - which of many calls raises is what is measured
        while fed < 10_000:
            parser.feed(chunk)
            fed += len(chunk)
    assert fed <= 5000


def test_many_events_never_fill_the_buffer() -> None:
    parser = SseParser(max_event_bytes=100)
    for _ in range(1000):
        assert parser.feed(b"data: " + b"x" * 80) == []
        assert parser.feed(b"\n: comment\n") == []
        assert parser.feed(b"\n") == [b"x" * 80]


LINES = st.sampled_from(
    [
        b"data: a",
        b"data:b",
        b"data",
        b"data: ",
        b": c",
        b"event: e",
        b"id",
        b"",
        b"",
        b"datax: n",
        b"data: \xe6\x97\xa5",
    ]
)


def reference(lines: list[bytes]) -> list[bytes]:
    """The standard's algorithm, line by line."""
    payloads, data = [], b""
    for line in lines:
        name, _, value = line.partition(b":")
        if not line:
            if data[:-1]:
                payloads.append(data[:-1])
            data = b""
        elif name == b"data":
            data += value.removeprefix(b" ") + b"\n"
    return payloads


@settings(max_examples=500, deadline=None)
@given(st.lists(LINES, max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 80), max_size=8))
def test_any_cut_gives_what_the_standard_says(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    lines = [*lines, b""]
    stream = b"".join(line + end for line in lines)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:stop] for start, stop in itertools.pairwise(edges)]
    assert parse(*chunks) == reference(lines)


@given(st.lists(st.text(min_size=1).map(str.encode).filter(lambda p: b"\r" not in p), max_size=4))
def test_what_is_framed_is_parsed_back(payloads: list[bytes]) -> None:
    assert parse(frames(payloads)) == [payload for payload in payloads if payload]


def test_a_line_end_inside_a_payload_can_not_end_the_event() -> None:
    assert parse(frame(b'{"a":\r\n\r\n1,\r"b":2}\n\n')) == [b'{"a":\n\n1,\n"b":2}\n\n']


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"Model overloaded", "Model overloaded"),
        (b'"Model overloaded"', "Model overloaded"),
        (b'{"message":"Model overloaded","code":7}', "Model overloaded"),
        (b'{"type":"error","detail":"full"}', "full"),
        (b"<html>", "The upstream reported an error."),
        (b"[" * 5000, "The upstream reported an error."),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_an_event_named_error_says_so_itself(data: bytes, message: str) -> None:
    stream = b"data: 1\n\nevent: error\ndata: " + data + b"\n\ndata: 2\n\n"
    for cut in (0, 9, 22, 23, len(stream) - 9):  # the name alone in a chunk, too
        before, told, after = parse(stream[:cut], stream[cut:])
        assert (before, after) == (b"1", b"2")
        assert json.loads(told)["error"]["message"] == message


@pytest.mark.parametrize(
    "data", [b'{"type":"error","error":{"type":"overloaded_error"}}', b'{"error":"no"}', b"[DONE]"]
)
def test_what_says_so_already_stays_as_it_came(data: bytes) -> None:
    assert parse(b"event: error\ndata: " + data + b"\n\n") == [data]


def test_a_name_is_the_next_events_only() -> None:
    assert parse(b"event: error\n\ndata: 1\n\n") == [b"1"]
    assert parse(b"event: error\nevent: message\ndata: 1\n\n") == [b"1"]


def test_names_without_data_never_fill_the_buffer() -> None:
    parser = SseParser(max_event_bytes=100)
    for _ in range(1000):
        assert parser.feed(b"event: " + b"x" * 80 + b"\n\n") == []
    with pytest.raises(EventTooLargeError):
        parser.feed(b"event: " + b"x" * 101 + b"\n")
