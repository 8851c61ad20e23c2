"""Several answers to one prompt: it is computed once, each answer is as if alone, and the best are told by logprob."""

from typing import Any

import pytest
from toy_runner import ToyRunner, answer_alone, logprob_of, tails_of

from engine.engine import Engine, Output
from engine.errors import EngineError, InvalidRequest
from engine.request import Request, Status
from engine.types import Delta, EngineOptions, GenerationRequest, SamplingParams

PROMPT = [7] * 37


def make(toy: ToyRunner | None = None, **options: Any) -> Engine:
    return Engine(EngineOptions(model="toy", **{"max_batch_size": 8, **options}), toy or ToyRunner())


def add(engine: Engine, n: int, best_of: int | None = None, prompt: list[int] = PROMPT, **sampling: Any) -> Request:
    params = SamplingParams(**{"seed": 1, "max_tokens": 20, "ignore_eos": True, **sampling})
    return engine.add_request(
        GenerationRequest(request_id="r", prompt_token_ids=prompt, sampling=params, n=n, best_of=best_of)
    )


def drain(engine: Engine) -> list[Output]:
    outputs: list[Output] = []
    while engine.has_work:
        outputs += engine.step()
        engine.check_integrity()
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks
    assert [output.is_last for output in outputs] == [False] * (len(outputs) - 1) + [True]
    return outputs


def deltas(outputs: list[Output]) -> list[Delta]:
    return [output.delta for output in outputs if output.delta is not None]


def answers(found: list[Delta], n: int) -> list[list[int]]:
    return [[token for delta in found if delta.index == i for token in delta.token_ids] for i in range(n)]


def alone(index: int, prompt: list[int] = PROMPT, max_tokens: int = 20, seed: int = 1) -> list[int]:
    return answer_alone(prompt, max_tokens, seed=seed + index, ignore_eos=True)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 37, 48])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_the_prompt_is_computed_once(length: int, prefix_caching: bool) -> None:
    toy = ToyRunner()
    engine = make(toy, prefix_caching=prefix_caching)
    prompt = [7] * length
    add(engine, 4, prompt=prompt, max_tokens=9)
    found = deltas(drain(engine))
    assert answers(found, 4) == [alone(i, prompt, 9) for i in range(4)]
    num_run = sum(num_tokens for plan in toy.plans for _, _, num_tokens in plan)
    assert num_run == length + 3 + 4 * 8, (
        "the prompt, its last token for each further choice, and all answers but the last"
    )
    assert toy.transfers["copy"] == 3, "of the block that the prompt ends in"


def test_even_when_the_first_choice_has_ended_with_its_first_token() -> None:
    toy = ToyRunner()
    engine = make(toy, prefix_caching=False)
    add(engine, 4, max_tokens=1)
    assert answers(deltas(drain(engine)), 4) == [alone(i, max_tokens=1) for i in range(4)]
    assert sum(num_tokens for plan in toy.plans for _, _, num_tokens in plan) == len(PROMPT) + 3


def test_even_when_not_all_choices_can_run_at_a_time() -> None:
    toy = ToyRunner()
    engine = make(toy, max_batch_size=2, prefix_caching=False)
    add(engine, 5, max_tokens=4)
    assert answers(deltas(drain(engine)), 5) == [alone(i, max_tokens=4) for i in range(5)]
    assert sum(num_tokens for plan in toy.plans for _, _, num_tokens in plan) == len(PROMPT) + 4 + 5 * 3


def test_choices_differ_and_each_is_the_answer_to_its_own_seed() -> None:
    engine = make()
    add(engine, 4)
    found = answers(deltas(drain(engine)), 4)
    assert len({tuple(answer) for answer in found}) == 4
    for index, answer in enumerate(found):
        other = make()
        add(other, 1, seed=1 + index)
        assert answers(deltas(drain(other)), 1) == [answer]


def test_each_choice_ends_by_itself_and_the_prompt_is_told_by_all() -> None:
    engine = make()
    add(engine, 4, ignore_eos=False, max_tokens=200)
    found = deltas(drain(engine))
    for index in range(4):
        mine = [delta for delta in found if delta.index == index]
        assert [delta.finish_reason is not None for delta in mine] == [False] * (len(mine) - 1) + [True]
        assert all(delta.num_prompt_tokens == len(PROMPT) for delta in mine)
        assert mine[-1].num_generated_tokens == sum(len(delta.token_ids) for delta in mine)
    assert len({delta.finish_reason for delta in found}) > 1, "not all end alike"
    assert engine.stats().prompt_tokens_total == len(PROMPT)


def test_the_largest_seed_goes_on_at_the_smallest() -> None:
    engine = make()
    add(engine, 2, seed=2**64 - 1)
    assert answers(deltas(drain(engine)), 2) == [alone(0, seed=2**64 - 1), alone(0, seed=0)]


def mean_logprob(answer: list[int]) -> float:
    tails = tails_of(PROMPT + answer)
    return sum(logprob_of(tails[len(PROMPT) + i], token) for i, token in enumerate(answer)) / len(answer)


@pytest.mark.parametrize("logprobs", [None, 2])
def test_the_best_are_given_whole_at_the_end_and_the_others_are_counted(logprobs: int | None) -> None:
    engine = make()
    add(engine, 2, best_of=5, logprobs=logprobs)
    found = deltas(drain(engine))
    best = sorted((alone(i) for i in range(5)), key=mean_logprob, reverse=True)
    assert [list(delta.token_ids) for delta in found] == best[:2]
    assert [delta.index for delta in found] == [0, 1]
    assert [delta.num_discarded_tokens for delta in found] == [0, 3 * 20]
    assert [len(delta.logprobs) for delta in found] == [0 if logprobs is None else 20] * 2
    assert found[0].text == bytes(token for token in best[0] if token < 256).decode()
    assert engine.stats().generated_tokens_total == 5 * 20


def test_as_many_as_are_made_are_streamed() -> None:
    engine = make()
    add(engine, 2, best_of=2)
    found = deltas(drain(engine))
    assert len(found) > 2
    assert answers(found, 2) == [alone(0), alone(1)]


def test_no_tokens_asked_for_ends_every_choice() -> None:
    engine = make()
    add(engine, 3, max_tokens=0)
    found = deltas(drain(engine))
    assert [(delta.index, delta.finish_reason) for delta in found] == [(0, "length"), (1, "length"), (2, "length")]


@pytest.mark.parametrize("num_steps", range(0, 12, 2))
@pytest.mark.parametrize("best_of", [None, 6])
def test_an_abort_frees_all_choices_in_every_state(num_steps: int, best_of: int | None) -> None:
    engine = make(max_batch_tokens=16, max_batch_size=3)
    request = add(engine, 4, best_of=best_of)
    for _ in range(num_steps):
        engine.step()
    engine.abort(request)
    engine.abort(request)
    engine.check_integrity()
    assert not engine.has_work
    assert engine.step() == []
    assert {choice.status for choice in request.choices} == {Status.FINISHED}
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks


def test_one_choice_without_logits_ends_the_request_and_no_other() -> None:
    engine = make(ToyRunner(errors={"r": 3}))
    add(engine, 3)
    other = engine.add_request(
        GenerationRequest(
            request_id="other", prompt_token_ids=[2], sampling=SamplingParams(temperature=0, max_tokens=9)
        )
    )
    outputs: list[Output] = []
    while engine.has_work:
        outputs += engine.step()
        engine.check_integrity()
    failed = [output for output in outputs if output.error is not None]
    assert [type(output.error) for output in failed] == [EngineError]
    assert failed[0].is_last
    mine = [output for output in outputs if output.request is other]
    assert answers(deltas(mine), 1) == [answer_alone([2], 9)]


def test_waiting_choices_give_their_blocks_up_before_anybody_is_preempted() -> None:
    toy = ToyRunner(num_blocks=5)
    engine = make(toy, max_batch_size=2, prefix_caching=False)
    add(engine, 3, prompt=[1] * 17, max_tokens=24)
    assert answers(deltas(drain(engine)), 3) == [alone(i, [1] * 17, 24) for i in range(3)]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"n": 100}, "n"),
        ({"best_of": 100}, "best_of"),
        ({"n": 2, "pooling": "last"}, "n"),
    ],
)
def test_impossible_numbers_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    engine = make(max_waiting=50)
    with pytest.raises(InvalidRequest) as caught:
        engine.add_request(GenerationRequest(request_id="r", prompt_token_ids=[1], **fields))
    assert caught.value.param == param
    assert not engine.has_work
