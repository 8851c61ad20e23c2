"""Grammars through the whole engine: followed by every choice, kept over preemption, refused alone."""

import re
from typing import Any

import msgspec
import pytest
from toy_engine import ask, deltas, drain, make, text, tokens
from toy_runner import ToyRunner, answer_alone

from engine.errors import InvalidRequest
from engine.types import GenerationRequest, Grammar, SamplingParams


def with_grammar(pattern: str, n: int = 1, **sampling: Any) -> GenerationRequest:
    return GenerationRequest(
        request_id="g", prompt_token_ids=[5] * 20, n=n, grammar=Grammar(kind="regex", source=pattern),
        sampling=SamplingParams(**{"seed": 1, "max_tokens": 100, **sampling}),
    )  # fmt: skip


def test_every_choice_follows_the_grammar_on_its_own_way() -> None:
    engine = make(ToyRunner())
    request = engine.add_request(with_grammar(r"[a-z]{3}-[0-9]{4}", n=3))
    answer = deltas(drain(engine)[request])
    texts = [text([delta for delta in answer if delta.index == index]) for index in range(3)]
    assert all(re.fullmatch(r"[a-z]{3}-[0-9]{4}", each) for each in texts)
    assert len(set(texts)) == 3
    assert [delta.finish_reason for delta in answer if delta.finish_reason] == ["stop"] * 3


def test_a_finished_grammar_ends_even_if_the_end_token_is_to_be_ignored() -> None:
    engine = make(ToyRunner())
    request = engine.add_request(with_grammar("abc", ignore_eos=True))
    assert text(deltas(drain(engine)[request])) == "abc"


def test_a_grammar_survives_preemption() -> None:
    engine = make(ToyRunner(num_blocks=6))
    requests = [
        engine.add_request(msgspec.structs.replace(with_grammar("[a-f]{45}", seed=i), request_id=str(i)))
        for i in range(2)
    ]
    outputs = drain(engine)
    assert engine.stats().preemptions_total > 0
    for request in requests:
        assert re.fullmatch("[a-f]{45}", text(deltas(outputs[request])))


def test_a_bad_grammar_is_refused_alone() -> None:
    engine = make(ToyRunner())
    with pytest.raises(InvalidRequest, match="regular expression") as caught:
        engine.add_request(with_grammar("(unclosed"))
    assert caught.value.param == "grammar"
    assert tokens(ask(engine, [3], max_tokens=4)) == answer_alone([3], 4)
