"""`auto`, tiers, fallbacks and dry runs, as a client sees them."""

import json
from typing import Any

import pytest

from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.server import Gateway


def ask(
    gateway: Gateway, key: str, text: str, model: str = "auto", **headers: str
) -> tuple[int, dict[str, str], dict[str, Any]]:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 4}
    status, sent, raw = gateway.post("/v1/chat/completions", body, key, cache_control="no-store", **headers)
    return status, sent, json.loads(raw)


def test_code_goes_to_the_large_tier_whose_first_model_has_no_key(gateway: Gateway, key: str) -> None:
    status, headers, answer = ask(gateway, key, "Write a Python function that reverses a linked list.")
    assert status == 200
    assert headers["x-tollhouse-tier"] == "large"
    assert headers["x-tollhouse-model"] == "smollm2"
    assert headers["x-tollhouse-route"].startswith("task=code")
    assert "passed over for want of a key: big" in headers["x-tollhouse-route"]
    assert answer["model"] == "smollm2"
    assert "A_KEY_THAT_NOBODY_SETS is not set" in gateway.log


def test_the_header_names_the_tier(gateway: Gateway, key: str) -> None:
    _, headers, _ = ask(gateway, key, "Write a Python function.", x_tollhouse_tier="small")
    assert (headers["x-tollhouse-tier"], headers["x-tollhouse-route"]) == ("small", "header")


def test_an_explicit_model_wins_over_everything(gateway: Gateway, key: str) -> None:
    _, headers, _ = ask(gateway, key, "Write a Python function.", "probe/ok", x_tollhouse_tier="small")
    assert headers["x-tollhouse-model"] == "probe/ok"
    assert headers["x-tollhouse-route"] == "explicit model"
    assert "x-tollhouse-tier" not in headers


def test_a_broken_model_falls_back_to_the_next_of_its_tier(
    gateway: Gateway, key: str, upstream: MisbehavingUpstream
) -> None:
    status, headers, _ = ask(gateway, key, "hello there", x_tollhouse_tier="medium")
    assert status == 200
    assert headers["x-tollhouse-model"] == "smollm2"
    assert headers["x-tollhouse-attempts"] in ("1", "2")  # 1 once the breaker is open
    assert upstream.of("500")


def test_a_prompt_that_begs_for_a_tier_moves_nothing(gateway: Gateway, key: str) -> None:
    dry = {"x_tollhouse_dry_run": "1"}
    plain = ask(gateway, key, "Write a Python function that sorts a list.", **dry)
    begging = ask(gateway, key, "Use the small tier. Write a Python function that sorts a list.", **dry)
    assert plain[1]["x-tollhouse-tier"] == begging[1]["x-tollhouse-tier"] == "large"


def test_a_dry_run_answers_with_the_decision_and_calls_nothing(
    gateway: Gateway, key: str, upstream: MisbehavingUpstream
) -> None:
    before = len(upstream.of("ok"))
    status, headers, decision = ask(gateway, key, "What is 17 times 23?", x_tollhouse_dry_run="1")
    assert status == 200
    assert decision["object"] == "tollhouse.decision"
    assert decision["tier"] == headers["x-tollhouse-tier"]
    assert decision["candidates"][0] == "smollm2"
    assert set(decision["signals"]["scores"]) == {"small", "medium", "large"}
    assert headers["x-tollhouse-attempts"] == "0"
    explicit = ask(gateway, key, "What is 17 times 23?", "probe/ok", x_tollhouse_dry_run="1")[2]
    assert explicit["candidates"] == ["probe/ok"]
    assert len(upstream.of("ok")) == before


def test_a_prompt_that_fits_is_never_turned_away_by_an_estimate(gateway: Gateway, key: str) -> None:
    """5,531 tokens of six bytes each: by a quarter of its bytes it would not fit."""
    assert ask(gateway, key, "hello " * 5500, x_tollhouse_dry_run="1")[0] == 200


@pytest.mark.parametrize("text", ["", " ", "🙂", "a" * 20_000])
def test_there_is_always_a_decision(gateway: Gateway, key: str, text: str) -> None:
    status, headers, _ = ask(gateway, key, text, x_tollhouse_dry_run="1")
    assert status == 200
    assert headers["x-tollhouse-route"]


def test_images_go_to_nobody_here_and_the_error_names_them(gateway: Gateway, key: str) -> None:
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
    body = {"model": "auto", "messages": [{"role": "user", "content": parts}]}
    status, _, raw = gateway.post("/v1/chat/completions", body, key)
    assert status == 400
    assert "images" in json.loads(raw)["error"]["message"]
