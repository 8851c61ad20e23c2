"""What runs when: decodes first, chunks within the budget, preemption, whole-sequence admission, fairness."""

from typing import Any

import pytest
from toy_runner import ToyRunner, answer_alone

from engine.engine import Engine
from engine.request import Request, Status
from engine.types import EngineOptions, GenerationRequest, SamplingParams


def make(num_blocks: int = 64, max_batch_tokens: int = 64, max_batch_size: int = 8, **more: Any) -> Engine:
    options = EngineOptions(model="toy", max_batch_tokens=max_batch_tokens, max_batch_size=max_batch_size, **more)
    return Engine(options, ToyRunner(num_blocks=num_blocks, max_batch_tokens=max_batch_tokens))


def runner(engine: Engine) -> ToyRunner:
    assert isinstance(engine._runner, ToyRunner)
    return engine._runner


def add(engine: Engine, name: str, prompt: list[int], max_tokens: int = 5, key: str = "", priority: int = 0) -> Request:
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return engine.add_request(
        GenerationRequest(
            request_id=name, prompt_token_ids=prompt, sampling=sampling, fairness_key=key, priority=priority,
            cache_salt=name,
        )
    )  # fmt: skip


def run(engine: Engine, max_steps: int = 2000) -> None:
    for _ in range(max_steps):
        if not engine.has_work:
            assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks
            return
        engine.step()
        engine.check_integrity()
    raise AssertionError("the engine does not come to an end")


def text_of(request: Request) -> list[int]:
    return request.token_ids[request.num_prompt :]


def test_a_long_prompt_is_run_in_chunks_of_what_the_decodes_leave() -> None:
    engine = make(max_batch_tokens=32)
    for name in "abc":
        add(engine, name, [ord(name)] * 4, max_tokens=30)
    engine.step()
    long = add(engine, "long", [7] * 100)
    while long.num_generated == 0:
        engine.step()
    plans = runner(engine).plans[1:]
    assert [[name for name, _, _ in plan[:3]] for plan in plans] == [["a", "b", "c"]] * 4, "decodes come first, all"
    assert [plan[3] for plan in plans] == [("long", 0, 29), ("long", 29, 29), ("long", 58, 29), ("long", 87, 13)]
    run(engine)


def test_every_step_has_all_decodes_and_keeps_to_the_budget() -> None:
    engine = make(max_batch_tokens=24, max_batch_size=8)
    for i in range(20):
        add(engine, str(i), [i] * (3 + 17 * i % 50), max_tokens=9)
    while engine.has_work:
        decoding = {each.request_id for each in engine.scheduler.running if each.num_pending == 1}
        engine.step()
        plan = runner(engine).plans[-1]
        assert decoding == {name for name, _, _ in plan[: len(decoding)]}
        assert sum(num_tokens for _, _, num_tokens in plan) <= 24
        assert len(plan) <= 8


def test_more_decodes_than_the_budget_holds_are_never_admitted() -> None:
    engine = make(max_batch_tokens=3, max_batch_size=8)
    for i in range(6):
        add(engine, str(i), [i] * 5)
    run(engine)
    assert max(len(plan) for plan in runner(engine).plans) == 3


def test_a_prompt_is_admitted_only_when_all_of_it_fits() -> None:
    engine = make(num_blocks=8, max_batch_tokens=16)
    first = add(engine, "first", [1] * 80)
    second = add(engine, "second", [2] * 60)
    engine.step()
    assert (first.status, second.status) == (Status.RUNNING, Status.WAITING)
    assert len(first.block_ids) == 5, "blocks for the whole prompt, though only a chunk has run"
    run(engine)
    assert (first.num_preemptions, second.num_preemptions) == (0, 0)


def test_nobody_overtakes_a_request_that_does_not_fit_yet() -> None:
    engine = make(num_blocks=8)
    add(engine, "first", [1] * 80)
    big = add(engine, "big", [2] * 60)
    small = add(engine, "small", [3])
    engine.step()
    assert (big.status, small.status) == (Status.WAITING, Status.WAITING)
    run(engine)


def test_the_latest_of_the_lowest_priority_is_preempted() -> None:
    engine = make(num_blocks=6, max_batch_tokens=64)
    low = add(engine, "low", [1] * 15, max_tokens=60, priority=1)
    old = add(engine, "old", [2] * 15, max_tokens=60)
    new = add(engine, "new", [3] * 15, max_tokens=60)
    while not engine.scheduler.num_preemptions:
        assert engine.has_work
        engine.step()
    assert [each.num_preemptions for each in (low, old, new)] == [1, 0, 0]
    while engine.scheduler.num_preemptions < 2:
        assert engine.has_work
        engine.step()
    assert old.num_preemptions == 0
    run(engine)
    for each in (low, old, new):
        assert text_of(each) == answer_alone(each.params.prompt_token_ids, 60, ignore_eos=True)


@pytest.mark.parametrize("length", [31, 32, 33, 47, 48, 49])
def test_a_preempted_answer_is_whole(length: int) -> None:
    engine = make(num_blocks=2 * -(-length // 16) + 2)
    requests = [add(engine, name, [ord(name)] * length, max_tokens=35) for name in "ab"]
    run(engine)
    for request in requests:
        assert text_of(request) == answer_alone(request.params.prompt_token_ids, 35, ignore_eos=True)
    assert engine.stats().preemptions_total > 0


def test_a_pool_for_one_and_a_half_requests_makes_progress_without_thrashing() -> None:
    engine = make(num_blocks=12, max_batch_tokens=64)
    requests = [add(engine, str(i), [i] * 40, max_tokens=80) for i in range(8)]
    finished: list[str] = []
    while engine.has_work:
        before = sum(each.num_generated for each in requests)
        computed = sum(each.num_computed for each in engine.scheduler.running)
        for output in engine.step():
            if output.delta and output.delta.finish_reason:
                finished.append(output.request.request_id)
        after = sum(each.num_computed for each in engine.scheduler.running)
        assert sum(each.num_generated for each in requests) > before or after > computed, "a step without progress"
    assert max(each.num_preemptions for each in requests) <= 2
    assert finished == [str(i) for i in range(8)], "nobody loses his place"


def test_many_small_requests_in_a_tight_pool_are_preempted_at_most_twice() -> None:
    engine = make(num_blocks=20, max_batch_tokens=128, max_batch_size=16)
    requests = [add(engine, str(i), [i] * 20, max_tokens=40 + 7 * i % 60) for i in range(24)]
    run(engine)
    assert engine.stats().preemptions_total > 0
    assert max(each.num_preemptions for each in requests) <= 2


def test_fairness_keys_take_turns() -> None:
    engine = make(max_batch_size=1)
    for i in range(3):
        add(engine, f"busy{i}", [i] * 20, max_tokens=1, key="busy")
    add(engine, "calm", [9] * 20, max_tokens=1, key="calm")
    run(engine)
    order = [plan[0][0] for plan in runner(engine).plans]
    assert order == ["busy0", "calm", "busy1", "busy2"]


def test_release_frees_once_and_only_once() -> None:
    engine = make()
    request = add(engine, "a", [1] * 40)
    engine.step()
    engine.scheduler.release(request, "abort")
    engine.scheduler.release(request, "stop")
    assert request.finish_reason == "abort"
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks
    engine.scheduler.check_integrity()


def test_the_integrity_check_notices_a_lost_block() -> None:
    engine = make()
    request = add(engine, "a", [1] * 40, max_tokens=9)
    engine.step()
    request.block_ids.pop()
    with pytest.raises(AssertionError):
        engine.check_integrity()
