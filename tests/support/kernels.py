"""Which kernels this machine can't have is no failure; kernels that don't compile are one."""

import contextlib
from collections.abc import Iterator

import pytest

from kernels.cpu.build import KernelUnavailableError

_LACKING = ("this processor lacks", "no C++ compiler was found", "AMX")  # AMX: the system does not permit it


@contextlib.contextmanager
def skipping_what_the_machine_lacks() -> Iterator[None]:
    """Skips the test for want of instructions or a compiler; any other reason, above all a failed build, is raised."""
    try:
        yield
    except KernelUnavailableError as error:
        if (
            "can't compile" not in str(error)
            and "can't link" not in str(error)
            and any(reason in str(error) for reason in _LACKING)
        ):
            pytest.skip(str(error))
        raise
