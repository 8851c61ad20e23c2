"""The kernels compiled for each instruction set that this machine has."""

import pytest

from kernels.cpu.build import LEVELS, KernelUnavailableError, load_library
from kernels.cpu.program import Machine


@pytest.fixture(scope="session", params=LEVELS)
def machine(request: pytest.FixtureRequest) -> Machine:
    try:
        return Machine(load_library(LEVELS[request.param]))
    except KernelUnavailableError as error:
        pytest.skip(str(error))
