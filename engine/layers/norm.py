"""RMS norm (Zhang and Sennrich 2019, arXiv:1910.07467), alone or with the residual's sum. Knows no family."""

from dataclasses import dataclass

import torch

from kernels.operations import Operations


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """weight [hidden] float32."""

    operations: Operations
    weight: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> the same, normed."""
        return self.operations.rms_norm(x, self.weight, self.eps)

    def add(self, residual: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
        """residual [T, hidden] float32 takes in `update` [T, hidden]; returns it normed, in the operations' dtype."""
        return self.operations.add_rms_norm(residual, update, self.weight, self.eps)
