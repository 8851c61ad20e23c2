"""What a gateway does to the bytes between client and upstream: every test here is somebody's complaint about one.

The upstream is a script on a bare socket, the client is a bare socket too, so each side shows what the other one did.
"""

import gzip
import itertools
import json
import statistics
import struct
import time
from base64 import b64decode
from typing import Any

import pytest

from tests.conformance.raw_client import RawClient, Received
from tests.faults.misbehaving import MisbehavingUpstream
from tests.faults.misbehaving import Received as Sent
from tests.faults.misbehaviours import TEXT, VECTOR
from tests.support.server import Gateway

USER = [{"role": "user", "content": "hello"}]


class Road:
    """From a client through the gateway to the upstream. Every request is new to the cache."""

    def __init__(self, gateway: Gateway, key: str, upstream: MisbehavingUpstream) -> None:
        self.client = RawClient(gateway.base_url, key)
        self.key = key
        self.upstream = upstream

    def chat(self, behaviour: str, *, headers: dict[str, str] | None = None, **fields: Any) -> Received:
        body = {"model": f"probe/{behaviour}", "messages": USER} | fields
        return self.client.call("/chat/completions", body, {"Cache-Control": "no-store, no-cache"} | (headers or {}))

    def sent(self, behaviour: str) -> Sent:
        """What the upstream saw last."""
        return self.upstream.of(behaviour)[-1]

    def hangs_up(self, behaviour: str, *, stream: bool) -> float:
        """Leaves after 0.5 s; returns how long after that the upstream was let go."""
        before = len(self.upstream.of(behaviour))
        body = {"model": f"probe/{behaviour}", "messages": USER, "stream": stream}
        with self.client.send("/chat/completions", body):
            assert self.upstream.wait_until(lambda: len(self.upstream.of(behaviour)) > before)
            time.sleep(0.5)
        left = time.monotonic()
        request = self.upstream.of(behaviour)[-1]
        assert self.upstream.wait_until(lambda: request.hung_up_after_s is not None, 4), "the upstream is still busy"
        assert request.hung_up_after_s is not None
        return request.arrived + request.hung_up_after_s - left


@pytest.fixture
def road(gateway: Gateway, key: str, upstream: MisbehavingUpstream) -> Road:
    return Road(gateway, key, upstream)


# Streams


def test_usage_comes_once_and_without_choices(road: Road) -> None:
    answer = road.chat("ok", stream=True, stream_options={"include_usage": True})
    with_usage = [chunk for chunk in answer.chunks if chunk.get("usage")]
    assert len(with_usage) == 1
    assert with_usage[0]["choices"] == []
    assert with_usage[0]["usage"]["total_tokens"] == 18
    assert with_usage[0]["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert answer.chunks[-1] is not None
    assert answer.events[-1] == "[DONE]"


def test_usage_stays_away_from_who_did_not_ask(road: Road) -> None:
    answer = road.chat("ok", stream=True)
    assert road.sent("ok").json["stream_options"] == {"include_usage": True}  # for our own books
    assert answer.text == "xx"
    assert all(chunk["choices"] for chunk in answer.chunks)
    assert not any(chunk.get("usage") for chunk in answer.chunks)


def test_parallel_tool_calls_keep_their_index(road: Road) -> None:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
    answer = road.chat("tools", stream=True, tools=tools)
    calls: dict[int, dict[str, str]] = {}
    for chunk in answer.chunks:
        for call in chunk["choices"][0]["delta"].get("tool_calls") or []:
            parts = calls.setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
            parts["id"] += call.get("id") or ""
            parts["name"] += call["function"].get("name") or ""
            parts["arguments"] += call["function"].get("arguments") or ""
    assert calls == {
        index: {"id": f"call_{index}", "name": "weather", "arguments": f'{{"city":"{city}"}}'}
        for index, city in enumerate(("Paris", "Tokyo", "Lima"))
    }
    assert answer.chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("behaviour", ["comments", "loose"])
def test_an_upstreams_comments_and_fields_do_not_become_data(road: Road, behaviour: str) -> None:
    answer = road.chat(behaviour, stream=True)
    assert answer.text == "hi"
    assert answer.events[-1] == "[DONE]"


def test_characters_torn_at_network_chunks_arrive_whole(road: Road) -> None:
    answer = road.chat("utf8-split", stream=True)
    assert answer.text == TEXT
    assert "\ufffd" not in answer.raw.decode()


def test_an_upstream_that_forgets_done_is_forgiven(road: Road) -> None:
    answer = road.chat("no-done", stream=True)
    assert (answer.text, answer.events[-1], answer.complete) == ("x", "[DONE]", True)


def test_tokens_are_passed_on_as_they_come(road: Road) -> None:
    answer = road.chat("paced", stream=True)
    times = [seconds for seconds, piece in answer.arrivals if b'"content"' in piece]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len(times) == 8
    assert statistics.median(gaps) < 0.2
    assert times[0] < times[-1] - 0.5


# Requests


def test_content_null_reaches_the_upstream(road: Road) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]
    assert road.chat("ok", messages=history).status == 200
    assert road.sent("ok").json["messages"] == history


def test_fields_nobody_knows_arrive_and_none_are_added(road: Road) -> None:
    extra = {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}, "x_vendor": [1]}
    assert road.chat("ok", **extra).status == 200
    assert road.sent("ok").json == {"model": "probe/ok", "messages": USER} | extra


def test_the_clients_key_stays_here(road: Road) -> None:
    road.chat("ok", headers={"Cookie": "session=1"})
    sent = road.sent("ok").headers
    assert road.key not in json.dumps(sent)
    assert "cookie" not in sent


@pytest.mark.parametrize("behaviour", ["gzip", "deflate", "ok", "400", "gzip-400"])
@pytest.mark.parametrize("accept", [{}, {"Accept-Encoding": "gzip"}])
def test_the_bytes_are_encoded_as_the_header_says(road: Road, behaviour: str, accept: dict[str, str]) -> None:
    answer = road.chat(behaviour, headers=accept)
    encoding = answer.headers.get("content-encoding", "identity")
    assert encoding in ({"gzip", "identity"} if accept else {"identity"})
    body = json.loads(gzip.decompress(answer.raw) if encoding == "gzip" else answer.raw)
    assert (answer.status, "error" in body) == ((400, True) if behaviour.endswith("400") else (200, False))


def test_embeddings_in_base64(road: Road) -> None:
    body = {"model": "embed/ok", "input": "hi", "encoding_format": "base64"}
    answer = road.client.call("/embeddings", body)
    assert b64decode(answer.json["data"][0]["embedding"]) == struct.pack("<3f", *VECTOR)


def test_embeddings_by_default(road: Road) -> None:
    answer = road.client.call("/embeddings", {"model": "embed/ok", "input": f"hi {time.time_ns()}"})
    assert answer.json["data"][0]["embedding"] == VECTOR
    assert road.sent("ok").json.get("encoding_format", "float") == "float"


# Errors


@pytest.mark.parametrize("behaviour", ["429", "429-date"])
def test_a_429_keeps_its_headers_and_code(road: Road, behaviour: str) -> None:
    before = len(road.upstream.of(behaviour))
    answer = road.chat(behaviour)
    assert answer.status == 429
    assert answer.error["code"] == "rate_limit_exceeded"
    assert answer.headers["x-ratelimit-remaining-requests"] == "0"
    if behaviour == "429":
        assert answer.headers["retry-after"] == "7"
    else:
        assert answer.headers["retry-after"].endswith("GMT")
    assert len(road.upstream.of(behaviour)) == before + 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 404, 422])
def test_an_upstreams_refusal_passes_as_it_came(road: Road, status: int, stream: bool) -> None:
    before = len(road.upstream.of(str(status)))
    answer = road.chat(str(status), stream=stream)
    assert answer.status == status
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.error["type"] == "invalid_request_error"
    assert (answer.error["param"], answer.error["code"]) == ("messages", f"code_{status}")
    assert answer.error["message"].startswith(f"upstream says {status}")
    assert len(road.upstream.of(str(status))) == before + 1


@pytest.mark.parametrize("behaviour", ["401", "403", "500"])
def test_our_upstreams_faults_are_502_and_say_no_secrets(road: Road, behaviour: str) -> None:
    answer = road.chat(behaviour)
    assert answer.status == 502
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert "sk-" not in answer.error["message"]


@pytest.mark.parametrize("behaviour", ["silence", "silent-stream"])
def test_a_late_first_token_is_504(road: Road, behaviour: str) -> None:
    started = time.monotonic()
    answer = road.chat(behaviour, stream=True)
    assert answer.status == 504
    assert time.monotonic() - started < 6
    request = road.sent(behaviour)
    assert road.upstream.wait_until(lambda: request.hung_up_after_s is not None, 1)


# Hanging up


def test_a_client_that_leaves_frees_the_upstream(road: Road) -> None:
    assert road.hangs_up("slow", stream=False) < 1.0


def test_a_client_that_leaves_in_mid_stream_frees_the_upstream(road: Road) -> None:
    assert road.hangs_up("stall", stream=True) < 1.0
