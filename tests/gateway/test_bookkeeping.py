"""What a passage leaves in the books, over a real ledger and real prices."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.bookkeeping import Observer
from gateway.estimates import prompt_tokens
from gateway.ids import new_id
from gateway.ledger.records import AttemptRecord, RequestRecord
from gateway.passage import Passage
from gateway.telemetry.log import lines
from gateway.tenants.types import Key, Principal, Tenant
from gateway.wire.chat import parse_chat
from gateway.wire.embeddings import parse_embedding
from gateway.wire.usage import Usage
from semcache.types import Lookup, StoredAnswer
from tests.support.in_process import Gate, chat

pytestmark = pytest.mark.anyio

REPORTED = Usage(prompt_tokens=1000, completion_tokens=100)
SPENT = 1000 * 1_000 + 100 * 2_000  # nano-dollars, at 1 and 2 $/M
ON_DEAR = 1000 * 10_000 + 100 * 20_000


def passage(body: Any = None, parse: Any = parse_chat, **tenant: Any) -> Passage:
    principal = Principal(
        tenant=Tenant(id="t", name="acme", **tenant), key=Key(id="k", tenant_id="t", name="k", prefix="sk-th-abcd")
    )
    inference = parse(json.dumps(body or chat()).encode())
    return Passage(principal=principal, inference=inference, config_hash="c0ffee")


def attempt(of: Passage, model: str = "probe/ok", **fields: Any) -> AttemptRecord:
    known: dict[str, Any] = {
        "id": new_id(), "request_id": of.id, "index": len(of.attempts), "model": model, "provider": "upstream",
        "upstream_model": "ok", "started_at": of.started_at,
    }  # fmt: skip
    return AttemptRecord(**known | fields)


def settled(gate: Gate, of: Passage, *attempts: AttemptRecord, **ending: Any) -> RequestRecord:
    for each in attempts:
        gate.house.bookkeeper.attempt_closed(of, each)
    return gate.house.bookkeeper.settle(of, **ending)


async def test_an_answer_costs_its_tokens_and_saves_what_the_baseline_would_have_cost_more(gate: Gate) -> None:
    asked = passage()
    record = settled(gate, asked, attempt(asked, usage=REPORTED))
    assert (record.cost_nanousd, record.attempts[0].cost_nanousd) == (SPENT, SPENT)
    assert (record.baseline_model, record.baseline_cost_nanousd) == ("dear", ON_DEAR)
    assert record.saved_by_routing_nanousd == ON_DEAR - SPENT
    assert (record.model, record.provider, record.usage) == ("probe/ok", "upstream", REPORTED)
    assert (record.tenant_id, record.key_id, record.config_hash) == ("t", "k", "c0ffee")


async def test_a_request_is_settled_once(gate: Gate) -> None:
    asked = passage()
    record = settled(gate, asked, attempt(asked, usage=REPORTED))
    again = gate.house.bookkeeper.settle(asked, status="error", http_status=500, error_code="internal_error")
    assert again is record
    assert gate.records == [record]


async def test_failed_calls_are_paid_for_with_the_one_that_answered(gate: Gate) -> None:
    asked = passage()
    failed = attempt(asked, usage=Usage(prompt_tokens=500), status="error", error_code="timeout_idle")
    record = settled(gate, asked, failed, attempt(asked, "dear", usage=REPORTED))
    assert [each.cost_nanousd for each in record.attempts] == [500_000, ON_DEAR]
    assert record.cost_nanousd == 500_000 + ON_DEAR
    assert (record.model, record.usage) == ("dear", REPORTED)
    assert record.saved_by_routing_nanousd == 0  # what a detour cost is nobody's saving


@pytest.mark.parametrize(
    ("fields", "charged"),
    [
        ({"status": "cancelled", "error_code": "cancelled"}, True),
        ({"status": "error", "error_code": "timeout_first_token"}, True),
        ({"status": "error", "error_code": "timeout_total"}, True),
        ({"status": "error", "error_code": "timeout_idle"}, True),
        ({"status": "error", "error_code": "timeout_deadline"}, True),
        ({"status": "error", "error_code": "protocol_error"}, True),
        ({"status": "error", "error_code": "redirected"}, False),
        ({"status": "error", "error_code": "no_answer", "http_status": 200}, False),
        ({"status": "error", "error_code": "timeout_connect"}, False),
        ({"status": "error", "error_code": "connect_error"}, False),
        ({"status": "error", "error_code": "http_500", "http_status": 500}, False),
        ({"status": "error", "error_code": "http_429", "http_status": 429}, False),
        ({"status": "error", "error_code": "context_length_exceeded", "http_status": 400}, False),
    ],
)
async def test_what_may_have_run_is_charged_its_prompt_and_what_never_ran_nothing(
    gate: Gate, fields: dict[str, Any], charged: bool
) -> None:
    asked = passage()
    record = settled(gate, asked, attempt(asked, **fields), status=fields["status"], http_status=502)
    least = prompt_tokens(asked.inference)
    assert record.usage == (Usage(prompt_tokens=least, estimated=True) if charged else Usage())
    assert record.cost_nanousd == (least * 1_000 if charged else 0)


async def test_what_was_reported_is_never_replaced_by_an_estimate(gate: Gate) -> None:
    asked = passage()
    record = settled(
        gate, asked, attempt(asked, usage=REPORTED, status="error", error_code="protocol_error"), status="error"
    )
    assert record.usage == REPORTED


@pytest.mark.parametrize("status", ["error", "cancelled"])
async def test_only_a_whole_answer_saves_anything(gate: Gate, status: Any) -> None:
    asked = passage()
    record = settled(gate, asked, attempt(asked, usage=REPORTED, status=status), status=status, http_status=499)
    assert (record.status, record.cost_nanousd) == (status, SPENT)
    assert (record.saved_by_routing_nanousd, record.saved_by_cache_nanousd) == (0, 0)


async def test_an_estimate_takes_the_place_of_a_missing_report(gate: Gate) -> None:
    asked = passage()
    gate.house.bookkeeper.attempt_closed(asked, attempt(asked))
    assert asked.attempts[0].cost_nanousd == 0
    gate.house.bookkeeper.correct(asked, replace(REPORTED, estimated=True))
    record = gate.house.bookkeeper.settle(asked)
    assert (len(record.attempts), record.cost_nanousd, record.usage.estimated) == (1, SPENT, True)


async def test_a_request_that_called_nobody_has_a_record_all_the_same(gate: Gate) -> None:
    asked = passage()
    record = settled(gate, asked, status="error", http_status=429, error_code="rate_limit_exceeded")
    assert (record.model, record.attempts, record.cost_nanousd) == (None, (), 0)
    assert (record.status, record.http_status, record.error_code) == ("error", 429, "rate_limit_exceeded")


# Whom an answer is compared with.


async def test_a_tenants_own_baseline_comes_first(gate: Gate) -> None:
    asked = passage(baseline_model="probe/x")  # a glob has no price of its own by that name
    own = settled(gate, asked, attempt(asked, "dear", usage=REPORTED))
    assert own.baseline_model != "dear"
    other = passage(baseline_model="nowhere")  # 1 $/M for the prompt, nothing for the answer
    record = settled(gate, other, attempt(other, usage=REPORTED))
    assert (record.baseline_model, record.baseline_cost_nanousd) == ("nowhere", 1_000_000)
    assert record.saved_by_routing_nanousd == 1_000_000 - SPENT  # negative: the dearer model was used


async def test_a_baseline_without_a_price_is_none(gate: Gate) -> None:
    asked = passage(baseline_model="gpt-unheard-of")
    record = settled(gate, asked, attempt(asked, usage=REPORTED))
    assert (record.baseline_model, record.baseline_cost_nanousd) == (None, None)
    assert record.saved_by_routing_nanousd == 0


async def test_an_embedding_is_compared_with_nothing(gate: Gate) -> None:
    asked = passage({"model": "embed/ok", "input": "x"}, parse_embedding)
    record = settled(gate, asked, attempt(asked, "embed/ok", usage=Usage(prompt_tokens=1000)))
    assert (record.cost_nanousd, record.baseline_model) == (1_000_000, None)


async def test_a_hit_costs_nothing_and_reports_the_stored_answer(gate: Gate) -> None:
    asked = passage()
    answer = StoredAnswer(
        entry_id="e1", question="?", body=b"{}", model="probe/ok", tier="small", prompt_tokens=1000,
        completion_tokens=100, created_at=0.0,
    )  # fmt: skip
    asked.lookup = Lookup(outcome="hit-exact", reason="exact", answer=answer)
    record = settled(gate, asked)
    assert (record.cost_nanousd, record.attempts, record.usage) == (0, (), REPORTED)
    assert (record.cache_entry, record.model, record.tier) == ("e1", "probe/ok", "small")
    assert record.saved_by_cache_nanousd == SPENT
    assert record.saved_by_cache_nanousd + record.saved_by_routing_nanousd == record.baseline_cost_nanousd == ON_DEAR


# Where it is written.


async def test_a_call_is_in_the_journal_before_it_leaves_with_the_least_it_may_cost(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[tuple[AttemptRecord, RequestRecord]] = []
    monkeypatch.setattr(gate.house.ledger, "open_attempt", lambda *record: noted.append(record))
    asked = passage()
    observer = Observer(asked, gate.house.bookkeeper)
    observer.attempt_opened(attempt(asked))
    ((opened, request),) = noted
    assert opened.usage == Usage(prompt_tokens=prompt_tokens(asked.inference), estimated=True)
    assert request.id == asked.id
    assert (asked.num_attempts, asked.attempts) == (1, [])
    observer.attempt_closed(attempt(asked, usage=REPORTED))
    assert (asked.num_attempts, asked.attempts[0].cost_nanousd) == (1, SPENT)


async def test_a_settled_request_is_in_journal_sql_metrics_and_log(
    fresh_gate: Gate, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    asked = passage()
    settled(fresh_gate, asked, attempt(asked, usage=REPORTED))
    lines.write()
    line = json.loads(capsysbinary.readouterr().out)
    assert (line["request_id"], line["cost_usd"]) == (asked.id, "0.0012")
    assert 'tollhouse_requests_total{cache="bypass"' in fresh_gate.house.metrics.exposition().decode()
    (row,) = await fresh_gate.rows("SELECT * FROM requests")
    assert (row["id"], row["cost_nanousd"], row["baseline_model"]) == (asked.id, SPENT, "dear")
