"""A weight matrix as a model file has it: plain floats, or integers in groups with a scale and a minimum."""

from dataclasses import dataclass
from typing import TypeAlias

import torch

from kernels.code_layout import BYTES, GROUP_SIZE, CodeLayout

__all__ = ["GROUP_SIZE", "Matrix", "QuantisedMatrix", "dense", "take_rows"]


@dataclass(slots=True, frozen=True)
class QuantisedMatrix:
    """[num_outputs, num_inputs]: weight = scale * code + minimum, for each group of GROUP_SIZE inputs.

    codes [N, bytes of a row] uint8, packed as `layout` says, each below 2 ** bits (4 or 8). scales, minimums
    [N, K / GROUP_SIZE] float32 or float16. Every group format that files have is of this form: signed codes are
    shifted, and the shift goes into the minimum.
    """

    bits: int
    codes: torch.Tensor
    scales: torch.Tensor
    minimums: torch.Tensor
    layout: CodeLayout = BYTES

    @property
    def shape(self) -> tuple[int, int]:
        return self.scales.shape[0], self.scales.shape[1] * GROUP_SIZE

    def dequantise(self) -> torch.Tensor:
        """float32 [N, K]."""
        groups = self.layout.unpack(self.codes).view(*self.scales.shape, GROUP_SIZE).float()
        return (groups * self.scales.float()[..., None] + self.minimums.float()[..., None]).view(self.shape)

    def take_rows(self, index: torch.Tensor) -> "QuantisedMatrix":
        """The rows at `index` [n] int64, in that order."""
        codes, scales, minimums = (each.index_select(0, index) for each in (self.codes, self.scales, self.minimums))
        return QuantisedMatrix(self.bits, codes, scales, minimums, self.layout)


Matrix: TypeAlias = torch.Tensor | QuantisedMatrix


def dense(matrix: Matrix) -> torch.Tensor:
    """Floats of any type, [N, K]."""
    return matrix if isinstance(matrix, torch.Tensor) else matrix.dequantise()


def take_rows(matrix: Matrix, index: torch.Tensor) -> Matrix:
    return matrix.index_select(0, index) if isinstance(matrix, torch.Tensor) else matrix.take_rows(index)
