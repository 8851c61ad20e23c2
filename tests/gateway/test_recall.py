"""The cache at the gate: whose answers are served, which are kept, and that a bad one is only ever a miss."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from semcache.types import Question, StoredAnswer
from semcache.vector import Vector
from tests.faults.misbehaving import Wire
from tests.faults.misbehaviours import completion
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate, Line, chat

pytestmark = pytest.mark.anyio


def outcome(line: Line) -> str:
    assert line.status == 200, line.body
    return line["x-tollhouse-cache"]


# The client's own word.


async def test_no_store_neither_reads_nor_keeps(gate: Gate) -> None:
    assert outcome(await gate.ask(chat(), cache_control="no-store")) == "bypass"
    assert outcome(await gate.ask(chat())) == "miss"
    line = await gate.ask(chat(), cache_control="No-Store")
    assert (outcome(line), line["x-tollhouse-cache-reason"]) == ("bypass", "no-store")
    assert gate.num_sent() == 3


async def test_no_cache_asks_anew_and_keeps_the_new_answer(gate: Gate) -> None:
    first = await gate.ask(chat())
    assert outcome(await gate.ask(chat(), cache_control="no-cache")) == "bypass"
    third = await gate.ask(chat())
    assert outcome(third) == "hit-exact"
    entries = {record.cache_entry for record in gate.records if record.cache_entry}
    assert len(entries) == 1
    assert entries == {third["x-tollhouse-cache-entry"]}
    assert first.get("x-tollhouse-cache-entry") is None
    assert gate.num_sent() == 2


async def test_max_age_bounds_how_old_an_answer_may_be(gate: Gate) -> None:
    await gate.ask(chat())
    await asyncio.sleep(0.01)
    assert outcome(await gate.ask(chat(), cache_control="max-age=60")) == "hit-exact"
    line = await gate.ask(chat(), cache_control="max-age=0")
    assert (outcome(line), line["x-tollhouse-cache-reason"]) == ("miss", "max-age")
    assert outcome(await gate.ask(chat(), cache_control="max-age=60")) == "hit-exact"


# Who shares answers.


async def test_namespaces_keep_apart_within_a_tenant(gate: Gate) -> None:
    assert outcome(await gate.ask(chat(), x_tollhouse_namespace="a")) == "miss"
    assert outcome(await gate.ask(chat(), x_tollhouse_namespace="b")) == "miss"
    assert outcome(await gate.ask(chat())) == "miss"
    assert outcome(await gate.ask(chat(), x_tollhouse_namespace="a")) == "hit-exact"
    assert [record.namespace for record in gate.records] == ["a", "b", None, "a"]


async def test_tenants_never_share_and_a_tenants_keys_do(gate: Gate) -> None:
    other = await gate.tenant("rival")
    assert outcome(await gate.ask(chat())) == "miss"
    assert outcome(await gate.ask(chat(), key=other)) == "miss"
    assert outcome(await gate.ask(chat())) == "hit-exact"


# What is not asked of the cache at all.


@pytest.mark.parametrize(
    ("body", "parse", "reason"),
    [
        (chat(temperature=1.2), parse_chat, "temperature"),
        ({"model": "probe/texts", "prompt": ["one", "two"]}, parse_completion, "many-prompts"),
    ],
)
async def test_a_bypass_says_why_and_keeps_nothing(fresh_gate: Gate, body: Any, parse: Any, reason: str) -> None:
    for _ in range(2):
        line = await fresh_gate.ask(body, parse)
        assert (outcome(line), line["x-tollhouse-cache-reason"]) == ("bypass", reason)
    assert len(fresh_gate.upstream.received) == 2
    assert fresh_gate.house.cache.stats().entries == 0


async def test_a_cache_that_is_off_keeps_nothing(gate_with: OpenGate) -> None:
    gate = await gate_with(CONFIG.replace("semantic = false", "enabled = false"))
    for _ in range(2):
        line = await gate.ask(chat())
        assert (outcome(line), line["x-tollhouse-cache-reason"]) == ("bypass", "disabled")
    assert gate.house.cache.stats().entries == 0


# What is kept.


@pytest.mark.parametrize(
    "change",
    [
        {"finish_reason": "length"},
        {"finish_reason": "content_filter"},
        {"message": {"role": "assistant", "content": ""}},
        {"message": {"role": "assistant", "content": None, "refusal": "no"}},
        {"message": {"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}}},
        {"message": {"role": "assistant", "content": "x", "tool_calls": [{"id": "c", "type": "function"}]}},
    ],
)
async def test_only_whole_plain_answers_are_kept(gate: Gate, change: dict[str, Any]) -> None:
    async def script(wire: Wire) -> None:
        body = completion()
        body["choices"][0] |= change
        await wire.json(body)

    gate.upstream.on("partial", script)
    for _ in range(2):
        assert outcome(await gate.ask(chat("probe/partial"))) == "miss"
    assert gate.num_sent("partial") == 2


async def test_what_is_kept_knows_what_it_cost(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[StoredAnswer] = []

    async def noted(question: Question, answer: StoredAnswer, embedding: Vector | None) -> str:
        kept.append(answer)
        return "stored"

    monkeypatch.setattr(gate.house.cache, "admit", noted)
    line = await gate.ask(chat())
    (answer,) = kept
    assert answer.body == line.body
    assert (answer.model, answer.prompt_tokens, answer.completion_tokens) == ("probe/ok", 11, 7)
    assert answer.question == "Where is the harbour?"


# Answers that turn out unusable.


async def store_spoiled(gate: Gate, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    admit = gate.house.cache.admit

    async def spoiled(question: Question, answer: StoredAnswer, embedding: Vector | None) -> str:
        return await admit(question, replace(answer, body=body), embedding)

    with monkeypatch.context() as patched:
        patched.setattr(gate.house.cache, "admit", spoiled)
        await gate.ask(chat())
    assert gate.house.cache.stats().entries == 1
    gate.records.clear()


@pytest.mark.parametrize(
    ("body", "stream"),
    [
        (b"not json", False),
        (b"not json", True),
        (b"\xff\xfe", False),
        (b"[]", False),
        (b"[]", True),
        (b'{"id":"x","choices":[]}', True),
        (b'{"id":"x","choices":[{"message":null}]}', True),
        (b'{"id":"x"', False),
    ],
)
async def test_a_stored_answer_that_cannot_be_replayed_is_a_miss(
    fresh_gate: Gate, monkeypatch: pytest.MonkeyPatch, body: bytes, stream: bool
) -> None:
    await store_spoiled(fresh_gate, monkeypatch, body)
    line = await fresh_gate.ask(chat(stream=stream))
    assert outcome(line) == "miss"
    assert (line.text if stream else line.json["choices"][0]["message"]["content"]) in ("ok", "xx")
    record = fresh_gate.record
    assert (record.cache, record.cache_entry, record.saved_by_cache_nanousd) == ("miss", None, 0)
    assert record.cost_nanousd == 25_000
    assert outcome(await fresh_gate.ask(chat(stream=stream))) == "hit-exact"


# An edited config.


async def test_another_model_behind_a_name_makes_the_old_answers_another_questions(fresh_gate: Gate) -> None:
    body = chat("dear")
    assert [outcome(await fresh_gate.ask(body)) for _ in range(2)] == ["miss", "hit-exact"]
    await fresh_gate.reconfigure(('upstream_name = "ok"', 'upstream_name = "newer"'))
    assert outcome(await fresh_gate.ask(body)) == "miss"
    assert fresh_gate.num_sent("newer") == 1


async def test_another_provider_behind_a_name_makes_the_old_answers_another_questions(fresh_gate: Gate) -> None:
    body = chat("dear")
    await fresh_gate.ask(body)
    await fresh_gate.reconfigure(
        ('provider = "upstream"\nupstream_name = "ok"', 'provider = "hasty"\nupstream_name = "ok"')
    )
    assert outcome(await fresh_gate.ask(body)) == "miss"


async def test_an_edit_that_changes_no_answer_keeps_them(fresh_gate: Gate) -> None:
    body = chat("dear")
    await fresh_gate.ask(body)
    await fresh_gate.reconfigure(
        ("input_usd_per_mtok = 10.0", "input_usd_per_mtok = 11.0"), ("semantic = false", "ttl_s=50")
    )
    assert outcome(await fresh_gate.ask(body)) == "hit-exact"


async def test_an_edit_may_switch_the_cache_off_and_on(fresh_gate: Gate) -> None:
    await fresh_gate.ask(chat())
    await fresh_gate.reconfigure(("semantic = false", "semantic = false\nenabled = false"))
    assert outcome(await fresh_gate.ask(chat())) == "bypass"
    await fresh_gate.reconfigure(("\nenabled = false", ""))
    assert outcome(await fresh_gate.ask(chat())) == "hit-exact"


async def test_another_model_in_a_tier_makes_autos_old_answers_another_questions(
    learned: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLHOUSE_HOME", str(tmp_path))  # where no trained head lies
    served, edited = (f'name = "dear"\nprovider = "upstream"\nupstream_name = "{name}"' for name in ("ok", "newer"))
    body = chat("auto", "Which ferry leaves from the old harbour on Sunday?")
    assert [outcome(await learned.ask(body)) for _ in range(2)] == ["miss", "hit-exact"]
    await learned.reconfigure((served, edited))
    assert outcome(await learned.ask(body)) == "miss"
    assert learned.num_sent("newer") == 1
    await learned.reconfigure((edited, served))
    assert outcome(await learned.ask(body)) == "hit-exact"  # the same question again, and the same answer


# Fallbacks.


async def test_what_a_fallback_answered_to_auto_is_not_kept(learned: Gate) -> None:
    body = chat("auto", "When does the night train to Lisbon leave?")
    for _ in range(2):
        line = await learned.ask(body, x_tollhouse_tier="shaky")
        assert (outcome(line), line["x-tollhouse-model"]) == ("miss", "dear")
    assert learned.num_sent("ok") == 2


async def test_what_the_tiers_first_model_answered_to_auto_is_kept(learned: Gate) -> None:
    body = chat("auto", "When does the day train to Porto leave?")
    outcomes = [outcome(await learned.ask(body, x_tollhouse_tier="small")) for _ in range(2)]
    assert outcomes == ["miss", "hit-exact"]


async def test_a_tier_that_was_asked_for_has_its_own_answers(learned: Gate) -> None:
    body = chat("auto", "When does the mail boat to Madeira leave?")
    assert outcome(await learned.ask(body, x_tollhouse_tier="small")) == "miss"
    assert outcome(await learned.ask(body)) == "miss"
    assert outcome(await learned.ask(body, x_tollhouse_tier="small")) == "hit-exact"


# By meaning.

STORED, ASKED = "How do I reset my password?", "How can I reset my password?"


def conversation(place: str, text: str, **last: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": place}, {"role": "user", "content": text} | last]
    return {"model": "probe/ok", "messages": messages}


async def test_a_paraphrase_is_served_and_says_how_near_it_is(learned: Gate) -> None:
    assert outcome(await learned.ask(conversation("a", STORED))) == "miss"
    line = await learned.ask(conversation("a", ASKED))
    assert outcome(line) == "hit-semantic"
    assert 0.85 <= float(line["x-tollhouse-similarity"]) < 1
    hit = learned.records[-1]
    assert (hit.cache, hit.cost_nanousd, hit.attempts) == ("hit-semantic", 0, ())
    assert hit.similarity == pytest.approx(float(line["x-tollhouse-similarity"]), abs=1e-4)
    assert hit.decision is None or hit.decision.embedding is not None


@pytest.mark.parametrize(
    ("stored", "asked"),
    [({}, {"name": "bob"}), ({"name": "alice"}, {"name": "bob"}), ({"name": "alice"}, {}), ({}, {"x_mood": "angry"})],
)
async def test_other_fields_of_the_last_message_separate(
    learned: Gate, stored: dict[str, Any], asked: dict[str, Any]
) -> None:
    place = json.dumps([stored, asked])
    assert outcome(await learned.ask(conversation(place, STORED, **stored))) == "miss"
    assert outcome(await learned.ask(conversation(place, ASKED, **asked))) == "miss"
    assert outcome(await learned.ask(conversation(place, STORED, **asked))) != "hit-exact"


async def answer_texts(wire: Wire) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    choice = {"index": 0, "text": "Click it.", "finish_reason": "stop"}
    await wire.json({"id": "cmpl-m", "object": "text_completion", "choices": [choice], "usage": usage})


@pytest.mark.parametrize(("echo", "expected"), [(False, "hit-semantic"), (True, "miss")])
async def test_an_echoed_prompt_is_never_answered_by_another(learned: Gate, echo: bool, expected: str) -> None:
    learned.upstream.on("texts", answer_texts)
    outcomes = []
    for prompt in (STORED, ASKED, STORED):
        body = {"model": "probe/texts", "prompt": prompt, "echo": echo}
        outcomes.append(outcome(await learned.ask(body, parse_completion)))
    assert outcomes == ["miss", expected, "hit-exact"]


async def test_a_tool_conversation_is_answered_by_its_exact_repeat_only(learned: Gate) -> None:
    def body(text: str) -> dict[str, Any]:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "42"},
            {"role": "user", "content": text},
        ]
        return {"model": "probe/ok", "messages": messages}

    assert outcome(await learned.ask(body(STORED))) == "miss"
    assert outcome(await learned.ask(body(ASKED))) == "miss"
    assert outcome(await learned.ask(body(ASKED))) == "hit-exact"
