"""What fails in a step ends those whom it concerns, and the engine goes on."""

import pytest
from toy_engine import add, ask, deltas, drain, make, script, text, tokens
from toy_runner import ToyRunner, answer_alone

from engine.errors import StepFailed
from engine.plan import StepResult


def test_a_failed_step_ends_the_running_requests_and_the_engine_goes_on() -> None:
    toy = ToyRunner()
    engine = make(toy, max_batch_size=1)
    first, second = add(engine, [1] * 40, "first", max_tokens=5), add(engine, [2] * 40, "second", max_tokens=5)
    engine.step()
    toy.fail = RuntimeError("out of memory")
    with pytest.raises(StepFailed, match="RuntimeError: out of memory") as caught:
        engine.step()
    outputs = engine.fail_running(caught.value)
    assert [(output.request, type(output.error)) for output in outputs] == [(first, StepFailed)]
    engine.check_integrity()
    assert tokens(deltas(drain(engine)[second])) == answer_alone([2] * 40, 5)


def test_blocks_of_a_failed_step_are_not_taken_for_cached() -> None:
    toy = ToyRunner()
    engine = make(toy)
    add(engine, [1] * 40, max_tokens=5)
    toy.fail = RuntimeError("no")
    with pytest.raises(StepFailed) as caught:
        engine.step()
    engine.fail_running(caught.value)
    assert ask(engine, [1] * 40, max_tokens=5)[-1].num_cached_tokens == 0


def test_one_answer_that_fails_does_not_take_the_batch_with_it() -> None:
    engine = make(ToyRunner(script={"bad": script(b"ok", 999)}))
    bad, good = add(engine, [1], "bad", max_tokens=5), add(engine, [2], "good", max_tokens=5)
    outputs = drain(engine)
    assert "no token 999" in str(outputs[bad][-1].error)
    assert text(deltas(outputs[bad][:-1])) == "ok"
    assert tokens(deltas(outputs[good])) == answer_alone([2], 5)


def test_a_runner_that_gives_too_few_tokens_is_noticed() -> None:
    toy = ToyRunner()
    engine = make(toy)
    add(engine, [1])
    toy.run = lambda plan: StepResult()  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="0 tokens for 1"):
        engine.step()


def test_a_request_without_logits_ends_alone() -> None:
    engine = make(ToyRunner(errors={"bad": 2}))
    bad, good = add(engine, [1], "bad", max_tokens=5, ignore_eos=True), add(engine, [2], "good", max_tokens=5)
    outputs = drain(engine)
    assert str(outputs[bad][-1].error) == "the logits are not numbers"
    assert tokens(deltas(outputs[bad][:-1])) == answer_alone([1], 2, ignore_eos=True)
    assert tokens(deltas(outputs[good])) == answer_alone([2], 5)
