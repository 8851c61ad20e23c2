"""The gated feed-forward layer. Knows no model family."""

import torch

from kernels.batch import TokenBatch
from kernels.operations import Activation, Operations, PackedWeight


class GatedMLP:
    """SwiGLU and its kin (Shazeer 2020, arXiv:2002.05202).

    `gate_up` packs the rows of both, [2 * intermediate, hidden]; `down` [hidden, intermediate].
    """

    def __init__(
        self, operations: Operations, gate_up: PackedWeight, down: PackedWeight, activation: Activation = "silu"
    ) -> None:
        self._operations = operations
        self._gate_up = gate_up
        self._down = down
        self._activation = activation

    def __call__(self, x: torch.Tensor, batch: TokenBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        gate_up = self._operations.linear(x, self._gate_up, batch)  # [T, 2 * intermediate]
        return self._operations.linear(self._operations.gated(gate_up, self._activation), self._down, batch)
