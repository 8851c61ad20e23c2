"""From a request to the models to try: the client's own word, then the router's."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.errors import InvalidRequestError, NotFoundError
from gateway.passage import Passage
from gateway.routes import choose, explicit, longest_answer
from gateway.tenants.types import Key, Principal, Tenant
from gateway.wire.chat import parse_chat
from gateway.wire.embeddings import parse_embedding
from tests.support.in_process import Gate, chat

pytestmark = pytest.mark.anyio


def passage(body: dict[str, Any], parse: Any = parse_chat, tier: str | None = None, **tenant: Any) -> Passage:
    principal = Principal(
        tenant=Tenant(id="t", name="acme", **tenant), key=Key(id="k", tenant_id="t", name="k", prefix="sk-th-abcd")
    )
    inference = parse(json.dumps(body).encode())
    return Passage(principal=principal, inference=inference, config_hash="", tier_wanted=tier)


# A model by its name.


async def test_a_named_model_is_the_only_candidate_and_knows_its_tier(learned: Gate) -> None:
    decision = explicit(passage(chat("big")), learned.house.snapshot)
    assert decision is not None
    assert (decision.candidates, decision.tier, decision.reason) == (("big",), "large", "explicit model")


async def test_a_name_that_a_glob_matches_has_no_tier(learned: Gate) -> None:
    decision = explicit(passage(chat("probe/anything")), learned.house.snapshot)
    assert decision is not None
    assert (decision.candidates, decision.tier) == (("probe/anything",), "")


@pytest.mark.parametrize(
    ("body", "parse", "says"),
    [
        (chat("nothing"), parse_chat, "does not exist"),
        (chat("embed/ok"), parse_chat, "not a chat model"),
        ({"model": "big", "input": "x"}, parse_embedding, "not an embedding model"),
        ({"model": "auto", "input": "x"}, parse_embedding, "does not exist"),
        (chat("locked"), parse_chat, "set A_KEY_THAT_NOBODY_SETS"),
        (chat("locked/x"), parse_chat, "set A_KEY_THAT_NOBODY_SETS"),
    ],
)
async def test_what_nobody_can_serve_is_not_found(learned: Gate, body: Any, parse: Any, says: str) -> None:
    with pytest.raises(NotFoundError, match=says) as refused:
        explicit(passage(body, parse), learned.house.snapshot)
    assert (refused.value.param, refused.value.code) == ("model", "model_not_found")


@pytest.mark.parametrize("model", ["auto", "big"])
async def test_an_unknown_tier_is_refused_with_the_known_ones(learned: Gate, model: str) -> None:
    with pytest.raises(InvalidRequestError, match="'gold'; there are: small, shaky, large") as refused:
        explicit(passage(chat(model), tier="gold"), learned.house.snapshot)
    assert (refused.value.param, refused.value.code) == ("x-tollhouse-tier", "unknown_tier")


async def test_without_tiers_there_is_no_auto_and_no_tier_to_ask_for(gate: Gate) -> None:
    with pytest.raises(NotFoundError):
        explicit(passage(chat("auto")), gate.house.snapshot)
    with pytest.raises(InvalidRequestError, match="there are: none"):
        explicit(passage(chat("dear"), tier="small"), gate.house.snapshot)


# auto.


async def test_auto_is_left_to_the_router(learned: Gate) -> None:
    asked = passage(chat("auto"))
    assert explicit(asked, learned.house.snapshot) is None
    decision = await choose(asked, learned.house, learned.house.snapshot)
    assert decision.tier == "small"
    assert decision.candidates[:2] == ("dear", "dead")
    assert asked.embedding is not None
    assert asked.embedding.shape == (384,)


async def test_a_tier_that_was_asked_for_is_taken_unread(learned: Gate) -> None:
    asked = passage(chat("auto"), tier="shaky")
    decision = await choose(asked, learned.house, learned.house.snapshot)
    assert (decision.tier, decision.candidates[0]) == ("shaky", "dead")
    assert asked.embedding is None


async def test_a_rule_decides_and_models_without_a_key_are_named(learned: Gate) -> None:
    decision = await choose(passage(chat("auto", "word " * 2000)), learned.house, learned.house.snapshot)
    assert (decision.tier, decision.candidates[0]) == ("large", "big")
    assert "long prompts" in decision.reason
    assert decision.reason.endswith("; passed over for want of a key: locked")


async def test_a_capability_that_no_model_has_is_named(learned: Gate) -> None:
    picture = [{"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}]
    with pytest.raises(InvalidRequestError, match="images") as refused:
        await choose(passage(chat("auto", picture)), learned.house, learned.house.snapshot)
    assert (refused.value.param, refused.value.code) == ("model", "missing_capability")


async def test_a_capability_moves_a_request_to_the_model_that_has_it(learned: Gate) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    decision = await choose(passage(chat("auto", tools=tools)), learned.house, learned.house.snapshot)
    assert decision.candidates == ("big",)


async def test_one_embedding_serves_cache_and_router(learned: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = learned.house.backends.embedder
    assert embedder is not None
    embed, asked = embedder.embed, []

    async def counting(texts: Sequence[str]) -> Any:
        asked.extend(texts)
        return await embed(texts)

    monkeypatch.setattr(embedder, "embed", counting)
    line = await learned.ask(chat("auto", "Who paints the lighthouse these days?"))
    assert line.status == 200
    assert asked == ["Who paints the lighthouse these days?"]
    record = learned.records[-1].decision
    assert record is not None
    assert record.embedding is not None
    assert len(record.embedding) == 2 * 384


async def test_auto_falls_back_and_books_both_calls(learned: Gate) -> None:
    line = await learned.ask(chat("auto", "Who paints the pier these days?"), x_tollhouse_tier="shaky")
    assert (line.status, line["x-tollhouse-model"], line["x-tollhouse-tier"]) == (200, "dear", "shaky")
    record = learned.records[-1]
    assert record.attempts[-1].model == "dear"
    assert [attempt.status for attempt in record.attempts][-1] == "ok"
    assert record.cost_nanousd == sum(attempt.cost_nanousd for attempt in record.attempts)


# How long an answer may be.


@pytest.mark.parametrize(
    ("body", "tenant", "tokens"),
    [
        (chat("dear", max_tokens=7), {"default_max_tokens": 50}, 7),
        (chat("dear", max_completion_tokens=8, max_tokens=7), {}, 8),
        (chat("dear"), {"default_max_tokens": 50}, 50),
        (chat("dear"), {"default_max_tokens": 0}, 0),
        (chat("dear"), {}, 1024),
    ],
)
async def test_the_longest_answer_is_the_clients_word_then_the_tenants_then_the_models(
    gate: Gate, body: dict[str, Any], tenant: dict[str, Any], tokens: int
) -> None:
    asked = passage(body, **tenant)
    asked.decision = explicit(asked, gate.house.snapshot)
    assert longest_answer(asked, gate.house.snapshot) == tokens


async def test_the_longest_answer_is_that_of_the_longest_candidate(fresh_gate: Gate) -> None:
    await fresh_gate.reconfigure(('upstream_name = "ok"', 'upstream_name = "ok"\nmax_output_tokens = 9'))
    asked = passage(chat("dear"))
    asked.decision = explicit(asked, fresh_gate.house.snapshot)
    assert longest_answer(asked, fresh_gate.house.snapshot) == 9
