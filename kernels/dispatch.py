"""Which implementation runs here: by device, instruction set and self-test, or by the TOLLHOUSE_KERNELS variable."""

import torch

from kernels.operations import HeadShape, Operations
from kernels.reference import ReferenceOperations


def choose_operations(device: torch.device, heads: HeadShape, hidden_size: int, intermediate_size: int) -> Operations:
    """The fastest implementation that this device and these shapes allow."""
    return ReferenceOperations(device)
