"""Requests that are swapped out: they come back, may leave, and are computed anew without room in host memory."""

import pytest
from toy_engine import add, drain, make
from toy_runner import ToyRunner, answer_alone

from engine.engine import Engine
from engine.request import Request


def swapped_out(engine: Engine) -> tuple[Request, Request]:
    """Two requests that outgrow six blocks; the second has just been swapped out."""
    first = add(engine, [1] * 30, "first", max_tokens=40, ignore_eos=True)
    second = add(engine, [2] * 30, "second", max_tokens=40, ignore_eos=True)
    while not second.host_block_ids:
        engine.step()
        engine.check_integrity()
    return first, second


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_swapped_request_comes_back_and_computes_nothing_twice(prefix_caching: bool) -> None:
    toy = ToyRunner(num_blocks=6, num_host_blocks=10)
    engine = make(toy, prefix_caching=prefix_caching)
    first, second = swapped_out(engine)
    outputs = drain(engine)
    for request, prompt in ((first, [1] * 30), (second, [2] * 30)):
        assert request.token_ids[30:] == answer_alone(prompt, 40, ignore_eos=True)
        assert sum(num for plan in toy.plans for name, _, num in plan if name == request.request_id) == 30 + 39
        assert outputs[request][-1].delta is not None
    assert engine.stats().swapped_blocks_total == toy.transfers["out"] > 0
    assert toy.transfers["in"] > 0
    assert engine.scheduler.tables.host.num_free == 10


def test_a_swapped_request_may_be_aborted() -> None:
    engine = make(ToyRunner(num_blocks=6, num_host_blocks=10))
    first, second = swapped_out(engine)
    engine.abort(second)
    engine.check_integrity()
    assert engine.scheduler.tables.host.num_free == 10
    assert [*drain(engine)] == [first]


def test_without_room_in_host_memory_the_victim_is_computed_anew() -> None:
    toy = ToyRunner(num_blocks=6, num_host_blocks=1)
    engine = make(toy, prefix_caching=False)
    requests = [add(engine, [i] * 30, str(i), max_tokens=40, ignore_eos=True) for i in range(2)]
    drain(engine)
    assert engine.stats().preemptions_total > 0
    assert engine.stats().swapped_blocks_total == 0
    for i, request in enumerate(requests):
        assert request.token_ids[30:] == answer_alone([i] * 30, 40, ignore_eos=True)
