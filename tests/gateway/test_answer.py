"""Answers as ASGI messages, and streams whose source always learns that they ended."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from gateway.answer import EVENT_STREAM, Answer, StreamAnswer, encode_headers, error_answer
from gateway.errors import RateLimitError
from tests.support.in_process import Line

pytestmark = pytest.mark.anyio


class Pieces:
    """A source that says the letters of a word, one every few milliseconds, and notes what became of it."""

    def __init__(self, word: str, pause_s: float = 0.0) -> None:
        self.word = word
        self.pause_s = pause_s
        self.ended = ""  # how `events` ended
        self.num_closed = 0

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            for letter in self.word:
                yield letter.encode()
                await asyncio.sleep(self.pause_s)
            self.ended = "done"
        except BaseException as error:
            self.ended = type(error).__name__
            raise

    async def close(self) -> None:
        self.num_closed += 1


async def test_a_whole_answer_is_two_messages_with_its_length() -> None:
    line = Line()
    await Answer(b'{"a":1}', status=201, headers=[(b"x-a", b"1")])({}, line.receive, line.send)
    assert (line.status, line.body, line.closed) == (201, b'{"a":1}', True)
    assert line.headers == [("content-type", "application/json"), ("content-length", "7"), ("x-a", "1")]


async def test_an_answer_may_be_of_another_type() -> None:
    line = Line()
    await Answer(b"", content_type=EVENT_STREAM)({}, line.receive, line.send)
    assert line["content-type"].startswith("text/event-stream")
    assert line["content-length"] == "0"


async def test_an_error_brings_its_own_headers_and_those_of_the_request() -> None:
    line = Line()
    error = RateLimitError("too many", headers={"retry-after": "2"})
    await error_answer(error, [(b"x-request-id", b"r")])({}, line.receive, line.send)
    assert line.status == 429
    assert (line["retry-after"], line["x-request-id"]) == ("2", "r")
    assert line.error == {"message": "too many", "type": "requests", "param": None, "code": "rate_limit_exceeded"}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("plain text", b"plain text"),
        ("two\r\nlines", b"two??lines"),
        ("größe", b"gr??e"),
        ("日本", b"??"),
        ("\x00\x7f\x85", b"???"),
        ("", b""),
    ],
)
def test_headers_hold_what_http_can_carry(value: str, sent: bytes) -> None:
    assert encode_headers([("x-a", value)]) == [(b"x-a", sent)]


async def test_a_stream_passes_piece_by_piece_and_is_never_buffered_on_its_way() -> None:
    line, source = Line(), Pieces("abc")
    await StreamAnswer(source, [(b"x-a", b"1")])({}, line.receive, line.send)
    assert (line.status, line.body, line.closed) == (200, b"abc", True)
    assert line["content-type"].startswith("text/event-stream")
    assert (line["cache-control"], line["x-accel-buffering"], line["x-a"]) == ("no-cache", "no", "1")
    assert (source.ended, source.num_closed) == ("done", 1)


async def test_a_client_that_leaves_ends_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.departure.PATIENCE_S", 0)
    line, source = Line(leaves_after=b"ab"), Pieces("abcdefghij" * 10, pause_s=0.02)
    await StreamAnswer(source, [])({}, line.receive, line.send)  # and nothing is raised: nobody is there to hear it
    assert not line.closed
    assert source.ended in ("CancelledError", "GeneratorExit")
    assert source.num_closed == 1


@pytest.mark.parametrize(("breaks_at", "ended"), [(0, ""), (1, "GeneratorExit"), (2, "GeneratorExit")])
async def test_a_send_that_fails_closes_the_source_begun_or_not(breaks_at: int, ended: str) -> None:
    line, source = Line(breaks_at=breaks_at), Pieces("abc")
    with pytest.raises(OSError, match="gone"):
        await StreamAnswer(source, [])({}, line.receive, line.send)
    assert (source.ended, source.num_closed) == (ended, 1)


async def test_a_cancellation_from_outside_closes_the_source_and_stays_one() -> None:
    line, source = Line(), Pieces("abc", pause_s=30)
    task = asyncio.create_task(StreamAnswer(source, [])({}, line.receive, line.send))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (source.ended, source.num_closed) == ("CancelledError", 1)
