"""Which implementation runs here: by device, instruction set and self-test, or by the TOLLHOUSE_KERNELS variable."""

import functools
import logging
import os

import torch

from kernels.cpu.build import KernelUnavailableError
from kernels.operations import ModelShape, Operations
from kernels.reference import ReferenceOperations
from kernels.self_test import SelfTestError, run_self_test

log = logging.getLogger(__name__)
CHOICES = ("auto", "avx512", "reference")


def choose_operations(device: torch.device, shape: ModelShape, *, bf16_copy: bool = True) -> Operations:
    """The fastest implementation that the device and the shapes allow and that passes its self-test.

    TOLLHOUSE_KERNELS = reference | avx512 overrides; raises ValueError for another word, and KernelUnavailableError
    when avx512 was asked for and can't be had. Falling back is said once, in the log.
    """
    wanted = os.environ.get("TOLLHOUSE_KERNELS", "auto")
    if wanted not in CHOICES:
        raise ValueError(f"TOLLHOUSE_KERNELS={wanted!r}: choose one of {', '.join(CHOICES)}")
    if device.type != "cpu" or wanted == "reference":
        return ReferenceOperations(device)
    try:
        operations = _avx512()
        if not operations.supports(shape):
            raise KernelUnavailableError(f"the kernels do not cover this model's shapes ({shape})")
        run_self_test(operations, shape.heads)
    except (KernelUnavailableError, SelfTestError) as error:
        if wanted == "avx512":
            raise KernelUnavailableError(f"TOLLHOUSE_KERNELS=avx512: {error}") from error
        _say_once(f"running in plain torch, several times slower: {error}")
        return ReferenceOperations(device)
    return operations


@functools.cache
def _avx512() -> Operations:
    from kernels.cpu.old.operations import Avx512Operations

    return Avx512Operations()


@functools.cache
def _say_once(message: str) -> None:
    log.warning(message)
