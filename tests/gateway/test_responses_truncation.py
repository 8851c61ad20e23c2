"""What of a conversation is left out, so that a model can hold the rest."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.responses.truncation import fitted, without_oldest
from gateway.tenants.types import Scope
from gateway.wire.responses_api.chat_request import chat_inference
from gateway.wire.responses_api.input_items import Item, check_resolved
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate
from tests.support.responses_api import create

pytestmark = pytest.mark.anyio

MODELS = """
[[model]]
name = "narrow"
provider = "upstream"
context_tokens = 400
[[model]]
name = "wide"
provider = "upstream"
context_tokens = 2000
[[model]]
name = "wider-with-eyes"
provider = "upstream"
context_tokens = 4000
capabilities = ["images"]
[tier.cheap]
models = ["narrow"]
[tier.dear]
models = ["wide"]
"""
WORDS = "word " * 40  # 200 bytes
IMAGE = "data:image/png;base64," + "A" * 100_000


def says(role: str, text: str = WORDS) -> Item:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def calls(id: str) -> list[Item]:
    return [
        {"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": id, "output": WORDS},
    ]


def turns(number: int) -> list[Item]:
    return [says(role, f"{turn} {WORDS}") for turn in range(number) for role in ("user", "assistant")]


UNIT = st.sampled_from(["user", "assistant", "developer", "calls", "crossed", "reasoning"])


def conversation(kinds: list[str]) -> list[Item]:
    items: list[Item] = []
    for place, kind in enumerate(kinds):
        if kind in ("calls", "crossed"):
            (first, told), (second, heard) = calls(f"a{place}"), calls(f"b{place}")
            items += [first, told] if kind == "calls" else [first, second, heard, told]
        else:
            thought = {"type": "reasoning", "summary": [], "id": f"rs_{place}"}
            items.append(thought if kind == "reasoning" else says(kind, f"{place} {WORDS}"))
    return [*items, says("user", "and now?")]


@given(st.lists(UNIT, max_size=12), st.integers(0, 5000))
def test_what_is_left_is_a_conversation_still(kinds: list[str], num_bytes: int) -> None:
    items = conversation(kinds)
    left = without_oldest(items, num_bytes)
    check_resolved(left)
    assert left[-1] == items[-1]
    assert [each for each in items if each in left] == left
    instructions = [each for each in items if each.get("role") == "developer"]
    assert [each for each in left if each.get("role") == "developer"] == instructions
    freed = sum(len(msgspec.json.encode(each)) for each in items) - sum(len(msgspec.json.encode(each)) for each in left)
    others = [each for each in left if each not in instructions]
    assert freed >= num_bytes or others == items[-1:]
    assert num_bytes == 0 or others[0]["role"] == "user"


def test_calls_of_the_present_turn_go_after_all_that_was_before() -> None:
    items = [*turns(1), says("user", "do it"), *calls("a"), *calls("b")]
    assert without_oldest(items, 1) == items[2:]
    assert without_oldest(items, 600) == [items[2], *calls("b")]
    assert without_oldest(items, 10**6) == [items[2], *calls("b")]


@pytest.fixture
async def gate(gate_with: OpenGate) -> Gate:
    return await gate_with(CONFIG + MODELS)


async def fit(gate: Gate, items: list[Item], tier: str | None = None, scope: Scope | None = None, **how: Any) -> Any:
    creation = create(truncation="auto", **how)
    left = await fitted(gate.house.snapshot, scope, creation, items, tier=tier)
    return left, len(chat_inference(creation, left).raw) / 4


async def test_it_fits_the_model_that_is_named(gate: Gate) -> None:
    left, num_tokens = await fit(gate, turns(20), model="narrow", max_output_tokens=100)
    assert 150 < num_tokens <= 300
    assert left == turns(20)[-len(left) :]
    assert len(left) % 2 == 0
    _, more = await fit(gate, turns(20), model="narrow", max_output_tokens=16)
    assert num_tokens < more <= 384


async def test_what_fits_stays_whole(gate: Gate) -> None:
    assert (await fit(gate, turns(2), model="narrow"))[0] == turns(2)
    assert (await fit(gate, turns(2), model="narrow", instructions=WORDS * 5))[0] != turns(2)


async def test_where_nobody_knows_what_a_model_holds_nothing_is_left_out(gate: Gate) -> None:
    for model in ("dear", "nobody-serves-this"):
        assert (await fit(gate, turns(500), model=model))[0] == turns(500)


async def test_left_to_the_router_it_fits_the_one_that_holds_most(gate: Gate) -> None:
    _, num_tokens = await fit(gate, turns(100), model="auto", max_output_tokens=100)
    assert 1000 < num_tokens <= 1900
    _, num_tokens = await fit(gate, turns(100), model="auto", max_output_tokens=100, tier="cheap")
    assert num_tokens <= 300
    _, num_tokens = await fit(gate, turns(100), model="auto", max_output_tokens=100, scope=Scope(tiers=("cheap",)))
    assert num_tokens <= 300


async def test_an_image_is_not_counted_by_its_bytes(gate: Gate) -> None:
    seen = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}
    items = [seen, *turns(2)]
    assert (await fit(gate, items, model="wider-with-eyes"))[0] == items


async def test_what_can_not_be_made_to_fit_is_told_as_it_is(gate: Gate) -> None:
    left, _ = await fit(gate, [*turns(3), says("user", WORDS * 50)], model="narrow")
    assert left == [says("user", WORDS * 50)]
