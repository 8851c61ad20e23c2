"""The kernels compiled for each instruction set that this machine has, and the torch twin beside them."""

from collections.abc import Iterator

import pytest
import torch

from kernels.cpu.build import LEVELS, load_library
from kernels.cpu.operations import CpuOperations
from kernels.cpu.program import Machine
from kernels.operations import Operations
from kernels.reference import ReferenceOperations
from tests.support.kernels import skipping_what_the_machine_lacks


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Most tests run kernels one by one, on a few rows: waking a second thread for each costs more than it brings."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=LEVELS)
def machine(request: pytest.FixtureRequest) -> Machine:
    with skipping_what_the_machine_lacks():
        return Machine(load_library(LEVELS[request.param]))


@pytest.fixture(scope="session", params=["reference", *LEVELS])
def operations(request: pytest.FixtureRequest) -> Operations:
    if request.param == "reference":
        return ReferenceOperations(torch.device("cpu"))
    with skipping_what_the_machine_lacks():
        return CpuOperations(LEVELS[request.param])
