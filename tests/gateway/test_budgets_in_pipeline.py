"""Budgets on a request's way, in real parts: what is reserved, what it costs in the end, and what comes back.

Cases F33 (a hit spends nothing) and F35a (50 at once against a budget for three) of the list of real complaints.
"""

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from gateway.errors import RateLimitError
from gateway.estimates import prompt_tokens
from gateway.store.budgets import select_spending
from gateway.tenants.budgets import set_budget
from gateway.tenants.limits import Limiter
from gateway.tenants.spending import LedgerBooks, Spending
from gateway.tenants.types import Budget, Limits
from gateway.wire.chat import parse_chat
from gateway.wire.usage import Usage
from tests.support.in_process import Gate, Line, chat

pytestmark = pytest.mark.anyio
ANSWER_COST = 25_000  # 11 tokens at 1 $/M, 7 at 2 $/M
MAX_TOKENS = 10


def question(text: str = "Where is the harbour?", model: str = "probe/ok", **fields: Any) -> dict[str, Any]:
    return chat(model, text, max_tokens=MAX_TOKENS, **fields)


def worst_case(body: dict[str, Any]) -> int:
    return prompt_tokens(parse_chat(json.dumps(body).encode())) * 1000 + MAX_TOKENS * 2000 * body.get("n", 1)


async def with_budget(gate: Gate, nanousd: int, **fields: Any) -> Budget:
    """For the gate's present tenant, and in force."""
    principal = gate.house.authenticator.authenticate(f"Bearer {gate.key}")
    fields = {"period": "month", **fields}
    budget = await set_budget(gate.house.database, principal.tenant.name, amount_nanousd=nanousd, **fields)
    async with asyncio.timeout(5):
        while budget not in gate.house.limiter._budgets.get(budget.owner_id, ()):
            await asyncio.sleep(0.02)
    return budget


async def test_what_an_answer_costs_counts_and_not_what_was_reserved(gate: Gate) -> None:
    body = question()
    await with_budget(gate, worst_case(body) + 2 * ANSWER_COST)
    for number in range(3):
        assert (await gate.ask(question(f"Number {number} of three?"))).status == 200
    refused = await gate.ask(question("One too many?"))
    assert (refused.status, refused.error["code"], refused.error["type"]) == (
        429, "budget_exceeded", "insufficient_quota",
    )  # fmt: skip
    assert "the month's budget" in refused.error["message"]
    assert int(refused["retry-after"]) >= 1
    assert gate.num_sent() == 3  # nothing was asked of the upstream
    assert (gate.records[-1].error_code, gate.records[-1].cost_nanousd) == ("budget_exceeded", 0)
    assert refused["x-tollhouse-cost-usd"] == "0.0"


async def test_a_streams_dollars_are_settled_before_its_last_byte_leaves(gate: Gate) -> None:
    """A client may take its time to read that: nothing is held for it, and no sum of the books counts it once more."""
    budget = await with_budget(gate, 10**9)
    counts = gate.house.limiter._counting._local
    at_the_end: list[tuple[int, int]] = []

    class Watching(Line):
        async def send(self, message: dict[str, Any]) -> None:
            if b"[DONE]" in message.get("body", b""):
                spent = [nanousd for (owner, _), (nanousd, _) in counts._spent.items() if owner == budget.owner_id]
                at_the_end.append((sum(counts._held.values()), sum(spent)))
            await super().send(message)

    await gate.ask(question(stream=True), line=Watching())
    assert at_the_end == [(0, ANSWER_COST)]


async def test_fifty_at_once_against_a_budget_for_three(gate: Gate) -> None:
    async def slow(wire: Any) -> None:
        await asyncio.sleep(0.3)
        await wire.json({"choices": [{"message": {"content": "ok"}}], "usage": {"prompt_tokens": 1}})

    gate.upstream.on("slow-and-cheap", slow)
    body = question("Number 00?", model="probe/slow-and-cheap")
    await with_budget(gate, 3 * worst_case(body))
    lines = await asyncio.gather(
        *(gate.ask(question(f"Number {number:02}?", model="probe/slow-and-cheap")) for number in range(50))
    )
    statuses = [line.status for line in lines]
    assert (statuses.count(200), statuses.count(429)) == (3, 47)
    assert gate.num_sent("slow-and-cheap") == 3


async def test_a_hit_spends_nothing_and_passes_a_spent_budget(gate: Gate) -> None:
    body = question("The very same?")
    await with_budget(gate, worst_case(body))
    assert (await gate.ask(body))["x-tollhouse-cache"] == "miss"
    for _ in range(20):
        hit = await gate.ask(body)
        assert (hit.status, hit["x-tollhouse-cache"], hit["x-tollhouse-cost-usd"]) == (200, "hit-exact", "0.0")
    assert (await gate.ask(question("Another?"))).status == 429
    spent = [record.cost_nanousd for record in gate.records]
    assert sum(spent) == ANSWER_COST


@pytest.mark.parametrize("model", ["probe/500", "probe/422", "probe/context-length", "nowhere"])
async def test_what_failed_at_no_cost_comes_back(gate: Gate, model: str) -> None:
    body = question()
    await with_budget(gate, worst_case(body) + 100_000)
    for _ in range(5):
        assert (await gate.ask(question(model=model))).status >= 400
    assert (await gate.ask(body)).status == 200


async def test_whoever_leaves_gives_back_all_but_the_prompt(gate: Gate) -> None:
    body = question(model="probe/silence")
    prompt_cost = worst_case(body) - MAX_TOKENS * 2000
    await with_budget(gate, worst_case(body) + prompt_cost)
    line = Line()
    asking = asyncio.create_task(gate.ask(body, line=line))
    await gate.until(lambda: gate.num_sent("silence") == 1)
    assert (await gate.ask(question(stream=True))).status == 429  # held by the one that runs
    line.leave()
    await asking
    assert gate.records[-1].cost_nanousd == prompt_cost
    assert (await gate.ask(question())).status == 200


async def test_a_stream_is_settled_at_what_it_used_however_it_ends(gate: Gate) -> None:
    body = question(stream=True)
    budget = await with_budget(gate, 2 * worst_case(body) + 2 * ANSWER_COST)
    for number in range(2):
        assert (await gate.ask(question(f"Stream {number}?", stream=True))).status == 200
    broken = await gate.ask(question("And then?", model="probe/cut", stream=True))
    assert b"[DONE]" not in broken.body
    left = budget.amount_nanousd - sum(record.cost_nanousd for record in gate.records)
    ticket = await gate.house.limiter.admit(gate.house.authenticator.authenticate(f"Bearer {gate.key}"))
    with pytest.raises(RateLimitError):
        await ticket.reserve(1, left + 1)
    await ticket.reserve(1, left)  # to the nano-dollar
    await ticket.settle()


async def test_several_answers_are_reserved_for_all_of_them(gate: Gate) -> None:
    one = question()
    await with_budget(gate, worst_case(one | {"n": 3}) - 1)
    assert (await gate.ask(question(n=4))).error["code"] == "budget_exceeded"
    assert (await gate.ask(question(n=2))).status == 200


async def test_a_soft_budget_warns_on_whole_answers_and_streams(gate: Gate) -> None:
    await with_budget(gate, ANSWER_COST, hard=False, period="day")
    first = await gate.ask(question("First?"))
    assert (first.status, first["x-tollhouse-budget-warning"]) == (
        200, "day budget of this tenant: 100% of $0.000025 spent",
    )  # fmt: skip
    assert "100%" in (await gate.ask(question("Second?", stream=True)))["x-tollhouse-budget-warning"]


async def test_after_a_restart_the_ledger_knows_what_was_spent(gate: Gate) -> None:
    """A new limiter over the same books, as a new process has it; the journal's last records included."""
    body = question()
    budget = await with_budget(gate, worst_case(body) + ANSWER_COST)
    for text in ("Before?", "And before?"):
        assert (await gate.ask(question(text))).status == 200
    house = gate.house
    books = LedgerBooks(house.ledger.drain, partial(select_spending, house.database))
    fresh = Limiter(Limits(), spending=Spending(books))
    fresh.set_budgets({budget.owner_id: (budget,)})
    principal = house.authenticator.authenticate(f"Bearer {gate.key}")
    ticket = await fresh.admit(principal)
    with pytest.raises(RateLimitError, match="is left of the month's budget"):
        await ticket.reserve(1, worst_case(body))
    await ticket.reserve(1, worst_case(body) - ANSWER_COST)
    await fresh.aclose()


async def test_a_tenant_without_budgets_is_not_priced_before_it_has_asked(gate: Gate) -> None:
    principal = gate.house.authenticator.authenticate(f"Bearer {gate.key}")
    ticket = await gate.house.limiter.admit(principal)
    assert not ticket.counts_dollars


async def test_the_dearest_of_all_candidates_is_reserved(gate: Gate) -> None:
    prices, usage = gate.house.prices, Usage(prompt_tokens=10, completion_tokens=10)
    alone = prices.dearest_nanousd(["dear"], usage)
    assert prices.dearest_nanousd(["probe/ok", "dear", "nowhere"], usage) == alone
    assert alone > prices.dearest_nanousd(["probe/ok"], usage)
