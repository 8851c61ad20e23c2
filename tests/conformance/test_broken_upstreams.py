"""Every way in which an upstream can fail, through a real gateway: never a finished answer that is none.

Cases A9, A10, D24 and D25 of the complaints that this folder retells, and what else sockets can do.
"""

import json
import time

import pytest

from tests.conformance.test_passing_through import Road, road  # noqa: F401

MIDWAY = [
    "cut", "short", "stall", "error-event",  # reset, closed without an end, silent, an error told in the stream
    "no-json", "half-json-event", "nul", "not-utf8", "token-then-endless",
    "short-length", "lost-terminator", "bad-chunk-later", "gzip-stream-cut",
]  # fmt: skip


@pytest.mark.parametrize("behaviour", MIDWAY)
def test_a_stream_that_breaks_is_never_presented_as_finished(road: Road, behaviour: str) -> None:  # noqa: F811
    answer = road.chat(behaviour, stream=True)
    assert answer.status == 200
    assert answer.text == "xxx"  # what was whole has come through
    assert "[DONE]" not in answer.events
    finishes = [choice.get("finish_reason") for chunk in answer.chunks for choice in chunk.get("choices") or []]
    assert not any(finishes)
    assert set(answer.chunks[-1]["error"]) == {"message", "type", "param", "code"}
    assert b"\0" not in answer.raw
    assert answer.complete  # the transfer itself is in order, and the connection can be used again


BEFORE = [
    "cut-before-token", "empty-stream", "error-first", "error-second", "gzip-lie", "brotli", "wrong-type",
    "reset", "close", "garbage", "half-head", "half-body", "half-chunk", "bad-chunk", "big-head", "upgrade", "redirect",
    "error-in-200", "nothing", "not-json", "half-json", "html", "no-content",
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("behaviour", BEFORE)
def test_what_breaks_before_the_first_token_is_an_error_with_a_status(
    road: Road,  # noqa: F811
    behaviour: str,
    stream: bool,
) -> None:
    answer = road.chat(behaviour, stream=stream)
    assert answer.status == 502
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.error["type"] == "upstream_error"


@pytest.mark.parametrize("behaviour", ["silence", "slow-loris", "endless-head", "only-comments"])
def test_what_never_comes_to_the_point_is_given_up(road: Road, behaviour: str) -> None:  # noqa: F811
    started = time.monotonic()
    answer = road.chat(behaviour, stream=True)
    assert answer.status == (502 if behaviour == "endless-head" else 504)
    assert time.monotonic() - started < 6
    request = road.sent(behaviour)
    assert road.upstream.wait_until(lambda: request.hung_up_after_s is not None, 2)


@pytest.mark.parametrize("behaviour", ["continue", "early-hints", "close-delimited", "surplus", "gzip", "close-after"])
def test_odd_answers_that_are_whole_are_forgiven(road: Road, behaviour: str) -> None:  # noqa: F811
    for _ in range(2):  # the connection is in order afterwards, or a new one is made
        answer = road.chat(behaviour)
        assert answer.status == 200
        assert json.loads(answer.raw)["choices"][0]["message"]["content"] in ("ok", "zipped")
