"""The first rule whose every condition holds decides; words are whole words."""

import pytest

from routing.rules import Rules
from routing.types import Prompt, Rule


def met(rule: Rule, text: str = "", num_tokens: int = 0, task: str | None = None) -> bool:
    return Rules((rule,)).first_met(Prompt(text=text, num_tokens=num_tokens), task) is not None


@pytest.mark.parametrize(
    ("phrase", "text", "expected"),
    [
        ("tax", "What about TAX returns?", True),
        ("tax", "syntax error in taxonomy", False),
        ("tax return", "my tax return is late", True),
        ("c++", "Write it in C++, please", True),
        ("c++", "c+ is no language", False),
        ("c", "vitamin C", True),
        ("straße", "Die STRASSE und die Straße", True),
        (".*", "anything", False),
    ],
)
def test_contains_means_whole_words_whatever_the_case(phrase: str, text: str, expected: bool) -> None:
    assert met(Rule(tier="large", contains=(phrase,)), text) is expected


def test_any_of_the_phrases_will_do() -> None:
    rule = Rule(tier="large", contains=("legal", "contract"))
    assert met(rule, "read this contract")
    assert not met(rule, "read this poem")


@pytest.mark.parametrize(("num_tokens", "expected"), [(9, False), (10, True), (20, True), (21, False)])
def test_sizes_are_inclusive(num_tokens: int, expected: bool) -> None:
    assert met(Rule(tier="large", min_prompt_tokens=10, max_prompt_tokens=20), num_tokens=num_tokens) is expected


def test_a_task_rule_needs_a_sure_task() -> None:
    rule = Rule(tier="large", task="code")
    assert met(rule, task="code")
    assert not met(rule, task="maths")
    assert not met(rule, task=None)


def test_every_stated_condition_must_hold() -> None:
    rule = Rule(tier="large", task="code", contains=("sql",), min_prompt_tokens=5)
    assert met(rule, "an sql query", 5, "code")
    assert not met(rule, "an sql query", 4, "code")
    assert not met(rule, "a query", 5, "code")
    assert not met(rule, "an sql query", 5, "chat")


def test_the_first_rule_met_wins_and_has_a_title() -> None:
    rules = Rules((Rule(tier="large", min_prompt_tokens=10), Rule(tier="small", name="hello", contains=("hi",))))
    first = rules.first_met(Prompt(text="hi", num_tokens=10), None)
    second = rules.first_met(Prompt(text="hi", num_tokens=1), None)
    assert first is not None
    assert second is not None
    assert (first[0].tier, first[1]) == ("large", "rule 1")
    assert (second[0].tier, second[1]) == ("small", 'rule "hello"')
    assert rules.first_met(Prompt(text="bye"), None) is None
