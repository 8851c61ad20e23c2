"""What is packed beside other work is packed in order and wholly, or its error is raised; what waits is bounded."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from kernels.cpu import program
from kernels.cpu.background import Background, begin
from kernels.cpu.call import Call
from kernels.cpu.packing import pack_panels
from kernels.cpu.products import logits, pack
from kernels.cpu.program import Machine
from kernels.matrix import Matrix, QuantisedMatrix
from kernels.self_test import random_quantised


def test_calls_are_carried_out_in_order_and_all_of_them() -> None:
    done: list[int] = []
    with Background(done.extend, most_bytes=100) as background:
        for i in range(1000):
            background.add(i, num_bytes=7)
    assert done == list(range(1000))


def test_what_waits_keeps_little_memory() -> None:
    """Whoever adds beyond the bound stands still until all that waited is taken."""
    gate, started = threading.Event(), threading.Event()
    batches: list[list[int]] = []

    def run(calls: Sequence[int]) -> None:
        batches.append(list(calls))
        started.set()
        gate.wait()

    with Background(run, most_bytes=60) as background:
        background.add(0, num_bytes=40)
        started.wait()
        background.add(1, num_bytes=40)
        assert batches == [[0]]
        third = threading.Thread(target=background.add, args=(2, 40))
        third.start()
        third.join(0.05)
        assert third.is_alive()  # 80 bytes wait
        gate.set()
        third.join()
    assert batches == [[0], [1, 2]]


def test_an_error_is_raised_at_the_end_and_holds_nobody_up() -> None:
    def run(calls: Sequence[int]) -> None:
        raise RuntimeError(f"call {calls[0]}")

    def fill() -> None:
        with Background(run, most_bytes=10) as background:
            for i in range(100):
                background.add(i, num_bytes=20)

    with pytest.raises(RuntimeError, match="call 0"):
        fill()


def test_an_error_of_the_caller_is_the_one_that_is_raised() -> None:
    def fail() -> None:
        with Background[int](lambda calls: None, most_bytes=10) as background:
            background.add(1, num_bytes=1)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()


@pytest.mark.parametrize("num_threads", [1, 3])
def test_weights_packed_in_the_background_are_the_same(machine: Machine, num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    generator = torch.Generator().manual_seed(0)
    matrices: list[Matrix] = [random_quantised(4 + 4 * (i % 2), 40, 96, generator) for i in range(30)]
    matrices += [torch.randn(50, 96, generator=generator) for _ in range(5)]
    with machine.in_background():
        found = [pack_panels(machine, [each], bf16_copy=True) for each in matrices]
    machine.await_copies()
    for panels, matrix in zip(found, matrices, strict=True):
        wanted = pack_panels(machine, [matrix], bf16_copy=True)
        assert all(torch.equal(mine, other) for mine, other in zip(panels.memory, wanted.memory, strict=True))


def test_torch_takes_one_thread_beside_the_packing(machine: Machine) -> None:
    def fail() -> None:
        with machine.in_background():
            assert torch.get_num_threads() == 1
            raise KeyError("mine")

    torch.set_num_threads(3)
    with pytest.raises(KeyError, match="mine"):
        fail()
    assert torch.get_num_threads() == 3


def test_a_prompt_waits_for_the_copy_and_a_generated_token_does_not(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def begin_late(run: Callable[[list[Call]], None], calls: list[list[Call]]) -> Future[None]:
        def wait_and_run(call: list[Call]) -> None:
            gate.wait()
            run(call)

        return begin(wait_and_run, calls)

    monkeypatch.setattr(program, "begin", begin_late)
    generator = torch.Generator().manual_seed(0)
    matrix, x = random_quantised(4, 40, 96, generator), torch.randn(6, 96, generator=generator).bfloat16()
    ready = pack(machine, [matrix], bf16_copy=True)
    with machine.in_background():
        late = pack(machine, [matrix], bf16_copy=True)
    assert torch.equal(logits(machine, x, late, num_generated=6), logits(machine, x, ready, num_generated=6))
    with ThreadPoolExecutor(1) as pool:
        prompt = pool.submit(logits, machine, x, late, 3)
        with pytest.raises(TimeoutError):
            prompt.result(0.05)
        gate.set()
        found = prompt.result()
    assert torch.equal(found, logits(machine, x, ready, num_generated=3))


def test_a_copy_that_fails_fails_each_prompt(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin_badly(run: object, calls: object) -> Future[None]:
        failed: Future[None] = Future()
        failed.set_exception(RuntimeError("no memory"))
        return failed

    monkeypatch.setattr(program, "begin", begin_badly)
    machine = Machine(machine._library)  # of this test alone: it is of no use any more
    with machine.in_background():
        weight = pack(machine, [torch.ones(40, 96)])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no memory"):
            logits(machine, torch.ones(1, 96).bfloat16(), weight, num_generated=0)


def test_calls_without_a_context_end_at_the_first_that_fails() -> None:
    done: list[int] = []

    def run(call: int) -> None:
        if call == 3:
            raise RuntimeError("call 3")
        done.append(call)

    begin(run, range(3)).result()
    with pytest.raises(RuntimeError, match="call 3"):
        begin(run, range(5)).result()
    assert done == [0, 1, 2] * 2


def test_what_nobody_keeps_is_there_until_it_is_packed(machine: Machine) -> None:
    """A load that fails drops weights whose packing is still under way."""
    zeros = torch.zeros(2048, 4096, dtype=torch.uint8)
    tables = torch.zeros(2048, 4096 // 32, dtype=torch.float16)
    with machine.in_background():
        for _ in range(12):  # of 40 MB: more than a piece of WeightMemory, so that each is unmapped when dropped
            pack_panels(machine, [QuantisedMatrix(8, zeros, tables, tables)], bf16_copy=True)
