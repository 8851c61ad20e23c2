"""What makes two requests the same question, and what separates them."""

import json
from typing import Any

import pytest

from gateway.question import Directives, ask, why_not_cacheable
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from semcache.types import Question

OWNER = ("tenant-a", "")
BASE: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "What is the capital of France?"},
    ],
    "temperature": 0.2,
}


def chat(owner: tuple[str, ...] = OWNER, bounds: str | None = None, **changes: Any) -> Question:
    return ask(parse_chat(json.dumps(BASE | changes).encode()), owner=owner, behind=["p", "m"], bounds=bounds)


def messages(index: int, **changes: Any) -> list[dict[str, Any]]:
    return [message | changes if i == index else message for i, message in enumerate(BASE["messages"])]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "u-1"},
        {"metadata": {"a": "b"}},
        {"n": 1},
        {"top_p": None},
        {"stop": None},
        {"tools": []},
        {"response_format": {"type": "text"}},
    ],
)
def test_what_does_not_change_the_answer_does_not_separate(changes: dict[str, Any]) -> None:
    assert chat(**changes).exact_key == chat().exact_key


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "other"},
        {"messages": messages(0, content="Be rude.")},
        {"messages": messages(1, content="Hi?")},
        {"messages": messages(2, content="Hi.")},
        {"messages": messages(2, reasoning_content="a field we do not know")},
        {"messages": BASE["messages"][3:]},
        {"temperature": 0.3},
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
        {"stop": "x"},
        {"n": 2},
        {"top_p": 0.5},
        {"top_p": 1.0},  # a server's own default need not be OpenAI's
        {"seed": 1},
        {"logit_bias": {"5": 1}},
        {"presence_penalty": 0.5},
        {"logprobs": True},
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"reasoning_effort": "low"},
        {"x_vendor": [1]},
    ],
)
def test_what_may_change_the_answer_is_another_partition(changes: dict[str, Any]) -> None:
    other = chat(**changes)
    assert other.partition != chat().partition
    assert other.exact_key != chat().exact_key


@pytest.mark.parametrize("field", ["name", "a_field_we_do_not_know"])
def test_what_the_last_turn_holds_beside_its_text_separates_too(field: str) -> None:
    alice, bob = (chat(messages=messages(3, **{field: value})) for value in ("alice", "bob"))
    assert alice.partition != bob.partition


def test_another_deployment_behind_the_name_is_another_question() -> None:
    inference = parse_chat(json.dumps(BASE).encode())
    one, two = (ask(inference, owner=OWNER, behind=["p", name], bounds=None) for name in ("v1", "v2"))
    assert one.exact_key != two.exact_key


def test_an_echoed_prompt_is_read_exactly_only() -> None:
    body = {"model": "m", "prompt": "How can I reset it?"}
    plain, echoed = (parse_completion(json.dumps(body | more).encode()) for more in ({}, {"echo": True}))
    assert ask(plain, owner=OWNER, behind=None, bounds=None).text
    assert not ask(echoed, owner=OWNER, behind=None, bounds=None).text


def test_another_last_turn_is_another_key_in_the_same_partition() -> None:
    other = chat(messages=messages(3, content="What is the capital of Spain?"))
    assert other.partition == chat().partition
    assert other.exact_key != chat().exact_key
    assert other.text == "What is the capital of Spain?"


def test_tenants_namespaces_and_bounds_separate() -> None:
    questions = [chat(), chat(owner=("tenant-b", "")), chat(owner=("tenant-a", "n")), chat(bounds="small")]
    assert len({question.partition for question in questions}) == 4
    assert len({question.exact_key for question in questions}) == 4


@pytest.mark.parametrize(
    "last",
    [
        {"role": "assistant", "content": "Well,"},
        {"role": "user", "content": [{"type": "text", "text": "What is on it?"}]},
    ],
)
def test_only_a_plain_user_turn_is_read_semantically(last: dict[str, Any]) -> None:
    assert chat(messages=[*BASE["messages"], last]).text == ""


def test_a_tool_conversation_is_never_read_semantically() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "user", "content": "And now?"},
    ]
    assert chat(messages=[*BASE["messages"], *history]).text == ""


def test_what_may_not_be_cached_says_why() -> None:
    hot = parse_chat(json.dumps(BASE | {"temperature": 1.5}).encode())
    assert why_not_cacheable(hot, 1.0) == "temperature"
    assert why_not_cacheable(hot, 2.0) is None
    without = {name: value for name, value in BASE.items() if name != "temperature"}
    assert why_not_cacheable(parse_chat(json.dumps(without).encode()), 0.0) is None
    several = parse_completion(json.dumps({"model": "m", "prompt": ["a", "b"]}).encode())
    assert why_not_cacheable(several, 1.0) == "many-prompts"


def test_cache_control_is_read() -> None:
    assert Directives.parse(None) == Directives()
    assert Directives.parse("No-Store, max-age=0") == Directives(no_store=True, max_age_s=0.0)
    assert Directives.parse("no-cache,only-if-cached") == Directives(no_cache=True, only_if_cached=True)
    assert Directives.parse('private, max-age="60"') == Directives(max_age_s=60.0)
    assert Directives.parse("max-ages=60, s-maxage=60") == Directives()


@pytest.mark.parametrize(
    "header", ["max-age=soon, private", "max-age=\u00b2", "max-age", "max-age=", "max-age=-5", "max-age=1.5"]
)
def test_an_age_that_is_none_finds_nothing_fresh_enough(header: str) -> None:
    assert Directives.parse(header) == Directives(max_age_s=0.0)
