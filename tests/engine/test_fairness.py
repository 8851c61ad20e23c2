"""Tenants, priorities and long prompts in one engine: nobody starves, nobody freezes, and who is urgent goes first."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_runner import ToyRunner, answer_alone

from engine import ageing
from engine.engine import Engine
from engine.request import Request, Status
from engine.types import EngineOptions, GenerationRequest, SamplingParams


def make(num_blocks: int = 200, num_host_blocks: int = 0, **options: Any) -> tuple[Engine, ToyRunner]:
    toy = ToyRunner(num_blocks=num_blocks, num_host_blocks=num_host_blocks, context=5000)
    return Engine(EngineOptions(model="toy", **{"max_batch_tokens": 64, "max_batch_size": 8, **options}), toy), toy


def add(engine: Engine, name: str, num_prompt: int, max_tokens: int = 5, key: str = "", priority: int = 0) -> Request:
    return engine.add_request(
        GenerationRequest(
            request_id=name, prompt_token_ids=[ord(name[0])] * num_prompt, fairness_key=key, priority=priority,
            sampling=SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True), cache_salt=name,
        )
    )  # fmt: skip


def run_until(engine: Engine, *requests: Request) -> int:
    """How many steps it takes until these have ended."""
    for step in range(20_000):
        if all(request.status is Status.FINISHED for request in requests):
            return step
        engine.step()
        engine.check_integrity()
    raise AssertionError("they do not come to an end")


def check_alone(*requests: Request) -> None:
    for request in requests:
        num_generated = request.max_length - request.num_prompt
        expected = answer_alone(request.params.prompt_token_ids, num_generated, 5000, ignore_eos=True)
        assert request.token_ids[request.num_prompt :] == expected


def test_a_thousand_queued_requests_of_one_tenant_do_not_starve_another_with_one() -> None:
    engine, _ = make()
    busy = [add(engine, f"b{i}", 20, key="busy") for i in range(1000)]
    engine.step()
    calm = add(engine, "c", 20, key="calm")
    run_until(engine, calm)
    num_before = sum(each.status is Status.FINISHED for each in busy)
    assert num_before <= 16, "it has waited for the places to become free, not for the queue"


def test_a_tenant_with_long_prompts_does_not_hold_up_one_with_short_ones() -> None:
    engine, toy = make(num_blocks=2000, max_batch_size=4)
    long = [add(engine, f"l{i}", 3000, key="long") for i in range(3)]
    engine.step()
    short = add(engine, "s", 20, key="short")
    assert run_until(engine, short) <= 5, "its prompt has a part of the very next step"
    assert all(each.num_generated == 0 for each in long)
    assert [sum(num_tokens for name, _, num_tokens in plan if name[0] == "l") for plan in toy.plans[:3]] == [64, 44, 63]
    run_until(engine, *long)


def test_prompts_under_way_share_a_step_in_equal_parts_by_tenant() -> None:
    engine, toy = make(num_blocks=2000)
    for name, key in (("a", "x"), ("b", "x"), ("c", "y")):
        add(engine, name, 600, key=key)
    for _ in range(4):
        engine.step()
    part_of = Counter[str]()
    for plan in toy.plans[1:]:
        for name, _, num_tokens in plan:
            part_of[name] += num_tokens
    assert part_of == {"a": 96, "c": 96}, "one tenant's prompts are run one after another"


def test_the_tokens_of_answers_are_charged_like_those_of_prompts() -> None:
    engine, _ = make(max_batch_size=1)
    long = [add(engine, f"l{i}", 4, max_tokens=400, key="long") for i in range(4)]
    short = [add(engine, f"s{i}", 4, max_tokens=20, key="short") for i in range(60)]
    run_until(engine, *long[:2])
    num_before = sum(each.status is Status.FINISHED for each in short)
    assert num_before >= 10, "one long answer costs its tenant as many turns as its tokens are worth"


def test_what_one_tenant_leaves_another_gets() -> None:
    engine, toy = make(num_blocks=2000)
    add(engine, "a", 600, key="x")
    add(engine, "b", 10, key="y", max_tokens=1)
    engine.step()
    assert toy.plans == [[("a", 0, 54), ("b", 0, 10)]]


def test_an_urgent_prompt_goes_before_a_less_urgent_one_that_is_under_way() -> None:
    engine, toy = make(num_blocks=2000)
    add(engine, "batch", 1000, priority=1)
    engine.step()
    urgent = add(engine, "urgent", 100)
    for _ in range(2):
        engine.step()
    assert toy.plans[1:] == [[("urgent", 0, 64)], [("urgent", 64, 36), ("batch", 64, 28)]]
    assert urgent.num_generated == 1


@pytest.mark.parametrize("num_host_blocks", [0, 100])
def test_an_urgent_request_takes_the_place_of_a_less_urgent_one(num_host_blocks: int) -> None:
    engine, toy = make(max_batch_size=2, num_host_blocks=num_host_blocks)
    batch = [add(engine, name, 30, max_tokens=60, priority=1) for name in "ab"]
    for _ in range(5):
        engine.step()
    urgent = add(engine, "u", 30)
    engine.step()
    assert [each.status for each in (*batch, urgent)] == [Status.RUNNING, Status.WAITING, Status.RUNNING]
    assert urgent.num_generated == 1
    run_until(engine, *batch, urgent)
    check_alone(*batch, urgent)
    assert [each.num_preemptions for each in batch] == [0, 1]
    assert (toy.transfers["out"] > 0, toy.transfers["in"] > 0) == (num_host_blocks > 0,) * 2


def test_an_urgent_request_takes_blocks_only_if_they_suffice() -> None:
    engine, _ = make(num_blocks=12, max_batch_size=4)
    urgent = add(engine, "u", 90, max_tokens=20)
    batch = add(engine, "b", 30, max_tokens=20, priority=1)
    while batch.status is not Status.RUNNING:
        engine.step()
    large = add(engine, "l", 120, max_tokens=20)
    for _ in range(3):
        engine.step()
    assert (batch.status, large.status) == (Status.RUNNING, Status.WAITING), "its blocks would not be enough"
    engine.abort(large)
    small = add(engine, "s", 40, max_tokens=20)
    engine.step()
    assert (batch.status, small.status) == (Status.WAITING, Status.RUNNING)
    run_until(engine, urgent, batch, small)
    check_alone(urgent, batch, small)


def test_nobody_is_sent_away_more_than_twice_where_blocks_suffice_for_one_and_a_half() -> None:
    engine, _ = make(num_blocks=30)
    requests = [add(engine, name, 16, max_tokens=300) for name in "abcdef"]  # 20 blocks each
    run_until(engine, *requests)
    assert max(each.num_preemptions for each in requests) == 2
    check_alone(*requests)


def test_equals_never_take_each_others_place() -> None:
    engine, _ = make(max_batch_size=2)
    requests = [add(engine, name, 30, max_tokens=30) for name in "abc"]
    run_until(engine, *requests)
    assert engine.stats().preemptions_total == 0


PATIENCE = 20


class Rush:
    """An engine in which urgent requests never stop to wait, with others of worse priorities behind them."""

    def __init__(self, behind: dict[str, int], num_prompt: int, max_tokens: int, **options: Any) -> None:
        self.engine, self.toy = make(num_blocks=2000, **options)
        self.shape = (num_prompt, max_tokens)
        self.urgent = [add(self.engine, f"u{i}", *self.shape, key="urgent") for i in range(9)]
        self.behind = [add(self.engine, name, 70, 9, key=name, priority=behind[name]) for name in behind]
        self.guests_at: list[set[str]] = []  # who of the worse priorities had tokens, in each step

    def step(self) -> None:
        while sum(each.priority == 0 for each in self.engine.scheduler.waiting) < 9:
            self.urgent.append(add(self.engine, f"u{len(self.urgent)}", *self.shape, key="urgent"))
        self.engine.step()
        self.engine.check_integrity()
        self.guests_at.append({name for name, _, _ in self.toy.plans[-1] if name[0] != "u"})


@settings(max_examples=12, deadline=None)
@given(
    num_prompt=st.integers(1, 200), max_tokens=st.integers(1, 30), max_batch_size=st.integers(1, 6),
    priorities=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)  # fmt: skip
def test_nobody_waits_for_ever_behind_a_better_priority_and_costs_it_one_place_at_most(
    num_prompt: int, max_tokens: int, max_batch_size: int, priorities: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ageing, "PATIENCE_STEPS", PATIENCE)
        behind = {f"b{i}": priority for i, priority in enumerate(priorities)}
        rush = Rush(behind, num_prompt, max_tokens, max_batch_size=max_batch_size)
        while any(each.status is not Status.FINISHED for each in rush.behind):
            rush.step()
            assert len(rush.guests_at) < 2000, "they starve"
    check_alone(*rush.behind)
    assert not any(rush.guests_at[: PATIENCE - 1]), "strictly by priority, for as long as nobody has waited for long"
    assert all(len(guests) <= 1 for guests in rush.guests_at)
    finished_at = [max(i for i, guests in enumerate(rush.guests_at) if name in guests) for name in behind]
    begun_at = [min(i for i, guests in enumerate(rush.guests_at) if name in guests) for name in behind]
    for end, begin in zip(sorted(finished_at), sorted(begun_at)[1:], strict=False):
        assert begin - end >= PATIENCE, "between two guests the best priority has all places"


def test_a_request_that_was_lifted_is_not_sent_away_again_and_keeps_up_with_better_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ageing, "PATIENCE_STEPS", PATIENCE)
    rush = Rush({"b": 5}, 30, 10, max_batch_size=2)
    (batch,) = rush.behind
    while batch.num_generated == 0:
        rush.step()
    assert batch.priority == 0
    for i in range(3):
        add(rush.engine, f"u-{i}", 30, 10, priority=-1)
    rush.step()
    assert batch.priority == -1, "what is better still does not take the place of the guest either"
    while batch.status is not Status.FINISHED:
        rush.step()
    assert batch.num_preemptions == 0


def test_a_prompt_under_way_that_gets_no_tokens_is_lifted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ageing, "PATIENCE_STEPS", PATIENCE)
    engine, _ = make(num_blocks=4000, max_batch_size=8)
    batch = add(engine, "b", 300, priority=1)
    engine.step()
    for i in range(4):
        add(engine, f"u{i}", 4000)
    while batch.num_generated == 0:
        engine.step()
        assert engine.stats().steps_total < 100, "the urgent prompts take whole steps, for hundreds of them"
    assert batch.num_preemptions == 0


def test_streams_go_on_while_a_long_prompt_arrives() -> None:
    """Every step has all decodes, and never more tokens than the budget: the gap is one chunk step."""
    engine, toy = make(num_blocks=2000, max_batch_tokens=128)
    streams = [add(engine, name, 10, max_tokens=200) for name in "abc"]
    engine.step()
    long = add(engine, "long", 4000)
    while long.num_generated == 0:
        before = [each.num_generated for each in streams]
        engine.step()
        assert [each.num_generated for each in streams] == [num + 1 for num in before]
        assert sum(num_tokens for _, _, num_tokens in toy.plans[-1]) <= 128


@settings(max_examples=15, deadline=None)
@given(
    shapes=st.fixed_dictionaries({key: st.tuples(st.integers(1, 200), st.integers(1, 60)) for key in ("x", "y", "z")}),
    max_batch_size=st.integers(1, 8),
    num_blocks=st.integers(30, 120),
)
def test_tenants_that_always_wait_get_equal_numbers_of_tokens(
    shapes: dict[str, tuple[int, int]], max_batch_size: int, num_blocks: int
) -> None:
    """Whatever their requests look like: up to the quantum, and what a tenant's running requests may still cost."""
    engine, toy = make(num_blocks=num_blocks, max_batch_size=max_batch_size)
    served = Counter[str]()
    waiting: dict[str, Request] = {}
    for step in range(150):
        for key, (num_prompt, max_tokens) in shapes.items():
            for i in range(max_batch_size + 1 if step == 0 else 0):
                add(engine, f"{key}{i}", num_prompt, max_tokens, key=key)
            while sum(each.params.fairness_key == key for each in engine.scheduler.waiting) <= max_batch_size:
                add(engine, f"{key}-{step}-{len(waiting)}", num_prompt, max_tokens, key=key)
        engine.step()
        if not engine.scheduler.num_preemptions:  # a preempted request costs its tokens twice
            for name, _, num_tokens in toy.plans[-1]:
                served[name[0]] += num_tokens
    largest = max(num_prompt + max_tokens for num_prompt, max_tokens in shapes.values())
    assert max(served.values()) - min(served[key] for key in shapes) <= 16 + (max_batch_size + 1) * largest
