"""Which implementation runs here: by device, instruction set and self-test, or by the TOLLHOUSE_KERNELS variable."""

import functools
import logging
import os

import torch

from kernels.cpu.build import LEVELS, KernelUnavailableError
from kernels.cpu.operations import CpuOperations
from kernels.operations import ModelShape, Operations
from kernels.passed_tests import PassedTest
from kernels.reference import ReferenceOperations
from kernels.self_test import SelfTestError, run_self_test

log = logging.getLogger(__name__)
CHOICES = ("auto", "reference", "avx2", "avx512", "amx")


def choose_operations(device: torch.device, shape: ModelShape, *, bf16_copy: bool = True) -> Operations:
    """The fastest implementation that the device and the shapes allow and that passes its self-test.

    TOLLHOUSE_KERNELS = reference | avx2 | avx512 | amx overrides; raises ValueError for another word, and
    KernelUnavailableError when an instruction set was asked for and can't be had. What keeps a faster one from
    running is said once, in the log.
    """
    wanted = os.environ.get("TOLLHOUSE_KERNELS") or "auto"
    if wanted not in CHOICES:
        raise ValueError(f"TOLLHOUSE_KERNELS={wanted!r}: choose one of {', '.join(CHOICES)}")
    if device.type != "cpu" and wanted in LEVELS:  # no error: the process may run other models on its CPU
        _say_once(logging.WARNING, f"TOLLHOUSE_KERNELS={wanted} is of CPUs, and says nothing for {device}")
    if device.type != "cpu" or wanted == "reference":
        return ReferenceOperations(device)
    names = LEVELS if wanted == "auto" else (wanted,)
    obstacles: dict[str, list[str]] = {}  # what is in the way -> of which instruction sets
    for name in names:
        try:
            operations = _tested(name, shape, bf16_copy)
        except (KernelUnavailableError, SelfTestError) as error:
            obstacles.setdefault(str(error), []).append(name)
        else:
            if obstacles:
                _say_once(logging.INFO, f"running on {name}. {_told(obstacles)}")
            return operations
    if wanted != "auto":
        raise KernelUnavailableError(f"TOLLHOUSE_KERNELS={_told(obstacles)}")
    _say_once(logging.WARNING, f"running in plain torch, several times slower. {_told(obstacles)}")
    return ReferenceOperations(device)


def _told(obstacles: dict[str, list[str]]) -> str:
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in obstacles.items())


def _tested(name: str, shape: ModelShape, bf16_copy: bool) -> Operations:
    # Each model has its own: what one records or packs, another's thread must not meet.
    operations = CpuOperations(LEVELS[name], bf16_copy=bf16_copy)
    if not operations.supports(shape):
        raise KernelUnavailableError(f"the kernels do not cover this model's shapes ({shape})")
    passed = _passed_test(operations, shape)
    if passed is None or not passed.is_remembered():
        run_self_test(operations, shape.heads)
        if passed is not None:
            passed.remember()
    return operations


def _passed_test(operations: CpuOperations, shape: ModelShape) -> PassedTest | None:
    """None if the library's file has gone since it was loaded: other processes clear the folder."""
    try:
        return PassedTest.of(operations.library, shape.heads)
    except OSError:
        return None


@functools.cache
def _say_once(severity: int, message: str) -> None:
    log.log(severity, message)
