"""What an answer says about itself in its headers."""

from typing import Any

import pytest

from gateway.headers import describe, settle_up, settle_up_comment
from gateway.ledger.records import RequestRecord
from gateway.passage import Passage
from gateway.tenants.types import Key, Principal, Tenant
from gateway.wire.chat import parse_chat
from routing.types import Decision
from semcache.types import Lookup, StoredAnswer

STORED = StoredAnswer(
    entry_id="e1", question="?", body=b"{}", model="small-1", tier="small", prompt_tokens=3, completion_tokens=4,
    created_at=0.0,
)  # fmt: skip
RECORD: dict[str, Any] = {
    "id": "r", "tenant_id": "t", "key_id": "k", "endpoint": "chat.completions", "requested_model": "m",
    "started_at": 0.0,
}  # fmt: skip


@pytest.fixture
def passage() -> Passage:
    tenant = Tenant(id="t", name="acme")
    key = Key(id="k", tenant_id="t", name="first", prefix="sk-th-abcd")
    inference = parse_chat(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}')
    return Passage(principal=Principal(tenant=tenant, key=key), inference=inference, config_hash="")


def told(passage: Passage) -> dict[str, str]:
    pairs = [(name.decode(), value.decode("ascii")) for name, value in describe(passage)]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_a_request_that_got_nowhere_says_that(passage: Passage) -> None:
    assert told(passage) == {
        "x-request-id": passage.id,
        "x-tollhouse-cache": "bypass",
        "x-tollhouse-cache-reason": "not-asked",
        "x-tollhouse-attempts": "0",
    }


def test_a_served_answer_names_model_tier_and_route(passage: Passage) -> None:
    passage.lookup = Lookup(outcome="miss", reason="below-threshold", similarity=0.87654)
    passage.decision = Decision(tier="small", candidates=("a", "b"), reason="task: chat")
    passage.served_model, passage.num_attempts = "b", 2
    headers = told(passage)
    assert headers["x-tollhouse-similarity"] == "0.8765"
    assert (headers["x-tollhouse-model"], headers["x-tollhouse-tier"]) == ("b", "small")
    assert (headers["x-tollhouse-route"], headers["x-tollhouse-attempts"]) == ("task: chat", "2")
    assert "x-tollhouse-cache-entry" not in headers


def test_a_hit_names_the_model_and_tier_of_the_stored_answer(passage: Passage) -> None:
    passage.lookup = Lookup(outcome="hit-semantic", reason="semantic", similarity=1.0, answer=STORED)
    headers = told(passage)
    assert headers["x-tollhouse-cache"] == "hit-semantic"
    assert (headers["x-tollhouse-model"], headers["x-tollhouse-tier"]) == ("small-1", "small")
    assert headers["x-tollhouse-cache-entry"] == "e1"
    assert "x-tollhouse-route" not in headers


def test_names_from_outside_can_neither_break_a_line_nor_the_encoding(passage: Passage) -> None:
    passage.decision = Decision(tier="", candidates=("m",), reason="rule: 'größer'\r\nset-cookie: a=b")
    passage.served_model = "модель"
    headers = told(passage)
    assert headers["x-tollhouse-model"] == "??????"
    assert headers["x-tollhouse-route"] == "rule: 'gr??er'??set-cookie: a=b"
    assert "x-tollhouse-tier" not in headers


def test_the_bill_adds_up_what_cache_and_routing_saved() -> None:
    record = RequestRecord(
        **RECORD, cost_nanousd=1_500, saved_by_cache_nanousd=2_000_000_000, saved_by_routing_nanousd=-500
    )
    assert settle_up(record) == [
        (b"x-tollhouse-cost-usd", b"0.0000015"),
        (b"x-tollhouse-saved-usd", b"1.9999995"),
    ]
    assert settle_up_comment(record) == b": tollhouse cost-usd=0.0000015 saved-usd=1.9999995\n\n"
