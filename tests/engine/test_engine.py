"""The whole engine: aborts, what it refuses, chats, and its figures."""

import itertools
from types import SimpleNamespace

import pytest
from toy_engine import add, ask, drain, make, tokens
from toy_runner import BOS, ToyRunner, ToyTokenizer, answer_alone

from engine.errors import InvalidRequest, PromptTooLong, TemplateError
from engine.types import GenerationRequest, SamplingParams


@pytest.mark.parametrize("num_steps", [0, 1, 4, 500])
def test_an_abort_frees_the_blocks_in_every_state(num_steps: int) -> None:
    """Waiting, after one chunk of three, decoding, finished."""
    engine = make(ToyRunner(), max_batch_tokens=30)
    request = add(engine, [1] * 80, max_tokens=40, ignore_eos=True)
    for _ in range(num_steps):
        engine.step()
    states = {0: (0, 0), 1: (30, 0), 4: (81, 2), 500: (0, 40)}
    assert (request.num_computed, request.num_generated) == states[num_steps]
    engine.abort(request)
    engine.abort(request)
    engine.check_integrity()
    assert engine.scheduler.pool.num_free == 64
    assert not engine.has_work
    assert engine.step() == []


def test_an_abort_of_a_preempted_request_leaves_the_queue() -> None:
    engine = make(ToyRunner(num_blocks=6))
    first = add(engine, [1] * 30, "first", max_tokens=40, ignore_eos=True)
    second = add(engine, [2] * 30, "second", max_tokens=40, ignore_eos=True)
    while first.num_generated < 39:
        engine.step()
    assert second.num_preemptions == 1
    engine.abort(second)
    engine.check_integrity()
    assert [*drain(engine)] == [first]


@pytest.mark.parametrize(
    ("options", "num_blocks", "limit"), [({}, 64, 200), ({"max_model_len": 100}, 64, 100), ({}, 4, 64)]
)
def test_what_can_never_fit_is_refused_with_both_numbers(options: dict[str, int], num_blocks: int, limit: int) -> None:
    """The model's context, the operator's limit, the whole pool: the smallest counts."""
    engine = make(ToyRunner(context=200, num_blocks=num_blocks), **options)
    with pytest.raises(PromptTooLong, match=f"{limit} tokens.*{limit}"):
        add(engine, [1] * limit)
    assert engine.info.context_length == limit
    answer = ask(engine, [1] * (limit - 1), ignore_eos=True)
    assert (answer[-1].num_generated_tokens, answer[-1].finish_reason) == (1, "length")


def test_an_empty_prompt_begins_with_bos() -> None:
    assert tokens(ask(make(ToyRunner()), [], max_tokens=4)) == answer_alone([BOS], 4)


def test_an_empty_prompt_without_bos_is_refused_and_the_next_request_works() -> None:
    engine = make(ToyRunner(tokenizer=ToyTokenizer(bos_id=None)))
    with pytest.raises(InvalidRequest, match="empty"):
        add(engine, [])
    assert tokens(ask(engine, [3], max_tokens=4)) == answer_alone([3], 4)


def test_a_conversation_becomes_a_prompt_without_a_second_bos() -> None:
    engine = make(ToyRunner())
    assert engine.encode_chat([{"role": "user", "content": "hi"}]) == list(b"<user>hi<assistant>")


def test_a_model_without_a_template_says_so() -> None:
    engine = make(ToyRunner(chat_template=None))
    with pytest.raises(TemplateError, match="no chat template"):
        engine.encode_chat([{"role": "user", "content": "hi"}])


def test_the_figures_add_up() -> None:
    toy = ToyRunner(num_blocks=9)
    engine = make(toy)
    for i in range(3):
        add(engine, [i] * 33, str(i), max_tokens=30, ignore_eos=True)
    drain(engine)
    ask(engine, [2] * 33, max_tokens=0)
    stats = engine.stats()
    assert stats.prompt_tokens_total == 4 * 33
    assert stats.cached_prompt_tokens_total in (16, 32)
    assert stats.generated_tokens_total == 90
    assert stats.steps_total == len(toy.plans)
    assert (stats.num_running, stats.num_waiting, stats.num_blocks, stats.num_free_blocks) == (0, 0, 9, 9)
    assert 0 < stats.num_cached_blocks <= 9


def test_the_time_of_a_step_is_shared_by_the_tokens_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=1000)
    monkeypatch.setattr("engine.engine.time", SimpleNamespace(perf_counter_ns=lambda: next(clock)))  # a step takes 1 µs
    engine = make(ToyRunner(num_blocks=64), prefix_caching=False)
    long = add(engine, list(range(30)), "long", max_tokens=4, ignore_eos=True)
    short = add(engine, list(range(10)), "short", max_tokens=4, ignore_eos=True)
    engine.step()
    assert (long.compute_ns, short.compute_ns) == (750, 250)
    drain(engine)
    assert (long.compute_ns, short.compute_ns) == (750 + 3 * 500, 250 + 3 * 500)


def test_the_time_of_all_choices_is_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=1000)
    monkeypatch.setattr("engine.engine.time", SimpleNamespace(perf_counter_ns=lambda: next(clock)))
    engine = make(ToyRunner(num_blocks=64))
    params = SamplingParams(temperature=1.0, max_tokens=5, ignore_eos=True, seed=1)
    first = engine.add_request(GenerationRequest(request_id="r", prompt_token_ids=[1, 2, 3], n=3, sampling=params))
    drain(engine)
    assert 1000 * engine.stats().steps_total - first.compute_ns < 3 * engine.stats().steps_total  # but for fractions
