"""A weight matrix as a model file has it: plain floats, or integers in groups with a scale and a minimum."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

GROUP_SIZE = 32  # inputs that share a scale and a minimum; coarser formats repeat theirs


@dataclass(slots=True, frozen=True)
class QuantisedMatrix:
    """[num_outputs, num_inputs]: weight = scale * code + minimum, for each group of GROUP_SIZE inputs.

    codes [N, K] uint8, below 2 ** bits (4 or 8). scales, minimums [N, K / GROUP_SIZE] float32 or float16. Every group
    format that files have is of this form: signed codes are shifted, and the shift goes into the minimum.
    """

    bits: int
    codes: torch.Tensor
    scales: torch.Tensor
    minimums: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def dequantise(self) -> torch.Tensor:
        """float32 [N, K]."""
        groups = self.codes.view(*self.scales.shape, GROUP_SIZE).float()
        return (groups * self.scales.float()[..., None] + self.minimums.float()[..., None]).view(self.shape)

    def take_rows(self, index: torch.Tensor) -> "QuantisedMatrix":
        """The rows at `index` [n] int64, in that order."""
        return QuantisedMatrix(
            self.bits, *(part.index_select(0, index) for part in (self.codes, self.scales, self.minimums))
        )


Matrix: TypeAlias = torch.Tensor | QuantisedMatrix


def dense(matrix: Matrix) -> torch.Tensor:
    """Floats of any type, [N, K]."""
    return matrix if isinstance(matrix, torch.Tensor) else matrix.dequantise()


def take_rows(matrix: Matrix, index: torch.Tensor) -> Matrix:
    return matrix.index_select(0, index) if isinstance(matrix, torch.Tensor) else matrix.take_rows(index)


def stack_rows(parts: Sequence[Matrix]) -> Matrix:
    """One matrix of all rows; quantised if all parts are, with equal bits."""
    quantised = [part for part in parts if isinstance(part, QuantisedMatrix)]
    if len(quantised) == len(parts) and len({part.bits for part in quantised}) == 1:
        columns = ([getattr(part, name) for part in quantised] for name in ("codes", "scales", "minimums"))
        return QuantisedMatrix(quantised[0].bits, *map(torch.cat, columns))
    plain = [dense(part) for part in parts]
    widest = max((part.dtype for part in plain), key=lambda dtype: torch.finfo(dtype).bits)
    return torch.cat([part.to(widest) for part in plain])
