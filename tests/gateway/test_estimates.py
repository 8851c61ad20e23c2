"""Token counts before anybody has counted."""

import json
from typing import Any

import pytest

from gateway.estimates import prompt_tokens, usage_of_unreported, usage_so_far, worst_case
from gateway.wire.chat import parse_chat
from gateway.wire.completeness import text_length
from gateway.wire.completions import parse_completion
from gateway.wire.embeddings import parse_embedding
from gateway.wire.inference import Inference
from gateway.wire.usage import Usage


def chat(text: str = "hi", **fields: Any) -> Inference:
    return parse_chat(json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]} | fields).encode())


def test_a_prompt_counts_with_all_that_is_sent_with_it() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 400}}]
    assert prompt_tokens(chat("x" * 4000)) - prompt_tokens(chat("")) == 1000
    assert prompt_tokens(chat(tools=tools)) > prompt_tokens(chat()) + 100


def test_the_estimate_is_near_what_english_takes() -> None:
    """SmolLM2's own count of this text is 1,001 tokens for 5,000 bytes."""
    assert 900 <= prompt_tokens(chat("word " * 1000)) <= 1400


def test_there_is_no_empty_prompt() -> None:
    inference = chat()
    assert prompt_tokens(Inference(endpoint=inference.endpoint, raw=b"{}", fields={}, model="m")) == 1


@pytest.mark.parametrize(("n", "wanted"), [(1, 100), (3, 300)])
def test_the_worst_case_is_every_choice_at_full_length(n: int, wanted: int) -> None:
    inference = chat(n=n)
    assert worst_case(inference, 100).total_tokens == prompt_tokens(inference) + wanted


def test_the_worst_case_of_several_prompts_counts_an_answer_to_each() -> None:
    inference = parse_completion(b'{"model":"m","prompt":["a","b"],"n":2}')
    assert worst_case(inference, 100).total_tokens == prompt_tokens(inference) + 400


def test_embeddings_have_no_answer_to_reserve_for() -> None:
    inference = parse_embedding(b'{"model":"m","input":"a longer text than usual"}')
    assert worst_case(inference, 100).total_tokens == prompt_tokens(inference)
    assert usage_of_unreported(inference, text_length(b"x" * 4000)).completion_tokens == 0


def answer(*texts: str) -> bytes:
    choices = [{"index": i, "message": {"role": "assistant", "content": text}} for i, text in enumerate(texts)]
    return json.dumps({"id": "x" * 400, "choices": choices}).encode()


def test_what_passed_without_a_report_is_a_token_a_delta() -> None:
    inference = chat()
    usage = Usage(prompt_tokens=prompt_tokens(inference), completion_tokens=5, estimated=True)
    assert usage_so_far(inference, 5) == usage


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (answer("x" * 400), 100),
        (answer("x" * 200, "y" * 200), 100),
        (answer("x"), 1),
        (answer(""), 0),
        (b'{"choices":[{"index":0,"text":"12345678"}]}', 2),
        (b"x" * 400, 0),
        (b"", 0),
    ],
)
def test_a_whole_answer_without_a_report_is_charged_by_what_it_says(body: bytes, tokens: int) -> None:
    usage = usage_of_unreported(chat(), text_length(body))
    assert (usage.prompt_tokens, usage.completion_tokens, usage.estimated) == (prompt_tokens(chat()), tokens, True)
