"""Answers from the cache: exact, semantic, streamed; and everything that must keep answers apart."""

import json
import uuid
from typing import Any

import pytest

from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.server import Gateway

Reply = tuple[int, dict[str, str], bytes]


def ask(gateway: Gateway, key: str, text: str, system: str = "", stream: bool = False, **headers: str) -> Reply:
    """`headers` that are not x-tollhouse-* by name are body fields."""
    fields: dict[str, Any] = {"model": "probe/ok", "temperature": 0}
    messages = [{"role": "system", "content": system}] if system else []
    body = fields | {"messages": [*messages, {"role": "user", "content": text}]}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return gateway.post("/v1/chat/completions", body, key, **headers)


def outcome(reply: Reply) -> str:
    assert reply[0] == 200, reply[2]
    return reply[1]["x-tollhouse-cache"]


@pytest.fixture
def place() -> str:
    """A system prompt nobody used before: a partition of its own."""
    return f"You serve branch {uuid.uuid4()}."


def test_an_exact_repeat_is_free_and_says_so(gateway: Gateway, key: str, place: str) -> None:
    first = ask(gateway, key, "How do I reset my password?", place)
    again = ask(gateway, key, "How do I reset my password?", place)
    assert (outcome(first), outcome(again)) == ("miss", "hit-exact")
    assert first[1]["x-tollhouse-cost-usd"] == "0.000025"  # 11 tokens at 1 $/M, 7 at 2 $/M
    assert again[1]["x-tollhouse-cost-usd"] == "0.0"
    assert again[1]["x-tollhouse-model"] == "probe/ok"
    assert json.loads(again[2])["choices"] == json.loads(first[2])["choices"]
    assert json.loads(again[2])["id"] != json.loads(first[2])["id"]


def test_a_paraphrase_hits_and_shows_its_similarity(gateway: Gateway, key: str, place: str) -> None:
    ask(gateway, key, "How do I reset my password?", place)
    reply = ask(gateway, key, "How can I reset my password?", place)
    assert outcome(reply) == "hit-semantic"
    assert float(reply[1]["x-tollhouse-similarity"]) > 0.85


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("How do I turn on dark mode?", "How do I turn off dark mode?"),
        ("What is 12*13 in decimal notation?", "What is 12*14 in decimal notation?"),
        ("Where is my order 48213 at the moment?", "Where is my order 48231 at the moment?"),
        ("Can I get a refund for the ticket?", "Can I not get a refund for the ticket?"),
    ],
)
def test_traps_miss(gateway: Gateway, key: str, place: str, stored: str, asked: str) -> None:
    ask(gateway, key, stored, place)
    reply = ask(gateway, key, asked, place)
    assert outcome(reply) == "miss"
    assert reply[1]["x-tollhouse-cache-reason"].startswith("guard:")


def test_another_tenant_never_gets_it(gateway: Gateway, key: str, place: str) -> None:
    other = gateway.key(f"t-{uuid.uuid4().hex[:8]}")
    ask(gateway, key, "What are your opening hours on Sunday?", place)
    assert outcome(ask(gateway, other, "What are your opening hours on Sunday?", place)) == "miss"
    assert outcome(ask(gateway, other, "What are your opening hours on Sunday?", place)) == "hit-exact"


def test_another_system_prompt_never_gets_it(gateway: Gateway, key: str, place: str) -> None:
    ask(gateway, key, "What are your opening hours on Sunday?", place)
    assert outcome(ask(gateway, key, "What are your opening hours on Sunday?", place + " Be rude.")) == "miss"


def test_a_namespace_narrows(gateway: Gateway, key: str, place: str) -> None:
    question = "What are your opening hours on Sunday?"
    ask(gateway, key, question, place, x_tollhouse_namespace="a")
    assert outcome(ask(gateway, key, question, place, x_tollhouse_namespace="b")) == "miss"
    assert outcome(ask(gateway, key, question, place)) == "miss"
    assert outcome(ask(gateway, key, question, place, x_tollhouse_namespace="a")) == "hit-exact"


def test_cache_control_is_obeyed(gateway: Gateway, key: str, place: str) -> None:
    question = "Which payment methods do you accept?"
    assert outcome(ask(gateway, key, question, place, cache_control="no-store")) == "bypass"
    assert ask(gateway, key, question, place, cache_control="only-if-cached")[0] == 504
    assert outcome(ask(gateway, key, question, place)) == "miss"  # no-store stored nothing
    assert outcome(ask(gateway, key, question, place, cache_control="no-cache")) == "bypass"
    assert outcome(ask(gateway, key, question, place, cache_control="only-if-cached")) == "hit-exact"
    assert outcome(ask(gateway, key, question, place, cache_control="max-age=0")) == "miss"


def events(reply: Reply) -> list[Any]:
    lines = [line[6:] for line in reply[2].split(b"\n") if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_stored_stream_is_replayed_as_one_and_as_a_whole(gateway: Gateway, key: str, place: str) -> None:
    question = "Which payment methods do you accept?"
    first = ask(gateway, key, question, place, stream=True)
    streamed = ask(gateway, key, question, place, stream=True)
    whole = ask(gateway, key, question, place)
    assert [outcome(first), outcome(streamed), outcome(whole)] == ["miss", "hit-exact", "hit-exact"]
    texts = []
    for reply in (first, streamed):
        deltas = [chunk["choices"][0]["delta"] for chunk in events(reply) if chunk["choices"]]
        assert deltas[0]["role"] == "assistant"
        texts.append("".join(delta.get("content") or "" for delta in deltas))
        assert events(reply)[-1]["usage"]["completion_tokens"] == 7
        assert sum(bool(c["choices"] and c["choices"][0]["finish_reason"]) for c in events(reply)) == 1
    assert texts[0] == texts[1] == json.loads(whole[2])["choices"][0]["message"]["content"]
    assert b": tollhouse cost-usd=0.0 " in streamed[2]


@pytest.mark.parametrize("behaviour", ["cut", "short", "length"])
def test_broken_and_truncated_answers_are_never_stored(
    gateway: Gateway, key: str, upstream: MisbehavingUpstream, place: str, behaviour: str
) -> None:
    body = {
        "model": f"probe/{behaviour}",
        "messages": [{"role": "system", "content": place}, {"role": "user", "content": "Tell me everything."}],
        "stream": True,
    }
    before = len(upstream.of(behaviour))
    for _ in range(2):
        reply = gateway.post("/v1/chat/completions", body, key)
        assert outcome(reply) == "miss"
        lines = [line[6:] for line in reply[2].split(b"\n") if line.startswith(b"data: ")]
        if behaviour == "length":
            assert lines[-1] == b"[DONE]"
        else:  # broken off, and said in the stream
            assert json.loads(lines[-1])["error"]["code"] == "protocol_error"
    assert len(upstream.of(behaviour)) == before + 2
