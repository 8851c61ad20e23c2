"""Every item of every deal is done once, and before what needs it, whatever the number of workers and their speed."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kernels.cpu.build import FOLDER, LEVELS, load_library
from kernels.cpu.program import Machine
from tests.support.kernels import skipping_what_the_machine_lacks


class Arguments(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        ("kept", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("size", ctypes.c_int),
        ("grain", ctypes.c_int),
        ("nap_us", ctypes.c_int),
    ]


@pytest.fixture(scope="module")
def machine() -> Machine:
    with skipping_what_the_machine_lacks():
        return Machine(load_library(LEVELS["avx2"], [FOLDER / "program.cpp", Path(__file__).parent / "deals.cpp"]))


@pytest.fixture(autouse=True, params=[1, 2, 7])
def num_workers(one_thread: None, request: pytest.FixtureRequest) -> None:
    torch.set_num_threads(request.param)


def numbers(rows: int, size: int) -> torch.Tensor:
    return torch.arange(rows * size).view(rows, size)


def shuffled(x: torch.Tensor) -> torch.Tensor:
    return 3 * (x + 1).flipud().fliplr() % 1000003


@pytest.mark.parametrize(("rows", "size", "grain", "nap_us"), [(1, 1, 1, 0), (3, 50, 1, 0), (40, 64, 100, 300)])
def test_a_kernel_waits_for_its_own_first_half(machine: Machine, rows: int, size: int, grain: int, nap_us: int) -> None:
    x, kept, out = numbers(rows, size), torch.zeros(rows, size).long(), torch.zeros(rows, size).long()
    machine.call("shuffle", Arguments, (rows, 0), x=x, kept=kept, out=out, size=size, grain=grain, nap_us=nap_us)
    assert torch.equal(out, shuffled(x))


def test_deals_side_by_side_and_empty_ones(machine: Machine) -> None:
    x, out = numbers(6, 50), torch.zeros(6, 50).long()
    machine.call("side_by_side", Arguments, (6, 0), x=x, out=out, size=50, grain=7)
    assert torch.equal(out, x + 1)


def test_scratch_belongs_to_one_worker(machine: Machine) -> None:
    x, out = numbers(30, 1000), torch.zeros(30, 1000).long()
    machine.call("through_scratch", Arguments, (30, 0), x=x, out=out, size=1000)
    assert torch.equal(out, x + torch.arange(30)[:, None])


def test_more_deals_than_a_kernel_has_are_an_error(machine: Machine) -> None:
    out = torch.zeros(1).long()
    machine.call("many_deals", Arguments, (8, 0), out=out)
    assert out.item() == 8
    with pytest.raises(RuntimeError, match="more deals than MAX_DEALS"):
        machine.call("many_deals", Arguments, (9, 0), out=out)
    machine.call("many_deals", Arguments, (8, 0), out=out)
    assert out.item() == 24


def test_a_long_chain_is_carried_out_in_order(machine: Machine) -> None:
    """Each kernel reads all that the one before it wrote, from memory that others used before."""

    def chain(x: torch.Tensor, rows: int) -> torch.Tensor:
        for i in range(200):
            kept, out = (machine.empty(len(x), 40, torch.int64) for _ in range(2))
            nap_us = 200 if i == 100 else 0
            machine.call("shuffle", Arguments, (0, 0), x=x, kept=kept, out=out, size=40, grain=1 + i % 3, nap_us=nap_us)
            x = out
        return x

    program, wanted = machine.record(chain, 4), numbers(4, 40)
    for _ in range(200):
        wanted = shuffled(wanted)
    for _ in range(10):
        assert torch.equal(program(numbers(4, 40), 0), wanted)


def test_programs_of_several_callers_run_one_after_the_other(machine: Machine) -> None:
    """Two engines of one process have a machine each, and the team of threads in common."""
    num_workers = torch.get_num_threads()

    def call_many(seed: int) -> bool:
        torch.set_num_threads(num_workers)  # OpenMP's count is each thread's own
        mine, x = Machine(machine._library), numbers(3, 50 + seed)
        for _ in range(100):
            kept, out = torch.zeros_like(x), torch.zeros_like(x)
            mine.call("shuffle", Arguments, (3, 0), x=x, kept=kept, out=out, size=50 + seed, grain=7, nap_us=0)
            if not torch.equal(out, shuffled(x)):
                return False
        return True

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(call_many, range(3)))
