"""The gated feed-forward layer. Knows no model family."""

import torch

from kernels.operations import Operations


class GatedMLP:
    """SwiGLU (Shazeer 2020, arXiv:2002.05202). `gate`, `up` [intermediate, hidden]; `down` [hidden, intermediate]."""

    def __init__(self, operations: Operations, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> None:
        self._operations = operations
        self._gate_up = operations.pack(torch.cat([gate, up]))
        self._down = operations.pack(down)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        gate_up = self._operations.linear(x, self._gate_up)  # [T, 2 * intermediate]
        return self._operations.linear(self._operations.silu_mul(gate_up), self._down)
