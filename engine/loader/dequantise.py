"""GGUF tensors as floats or as quantised matrices; what is rare is left to the `gguf` package. Knows no model."""

import math

import gguf
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine.errors import ModelLoadError
from engine.loader.checkpoint import expect_finite, not_finite
from engine.loader.gguf_blocks import has_finite_tables, is_group_format, quantised_matrix
from engine.loader.gguf_file import GGUFTensor
from kernels.matrix import Matrix, QuantisedMatrix, dense

_PLAIN = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16, Kind.F64: torch.float64}


def dequantise(tensor: GGUFTensor) -> torch.Tensor:
    """The tensor's values, float32, of `tensor.shape`; F16 and BF16 keep their type. Raises ModelLoadError."""
    if is_group_format(tensor.kind):
        return dense(_quantised(tensor)).view(tensor.shape)
    return expect_finite(tensor.name, _values(tensor)).view(tensor.shape)


def matrix(tensor: GGUFTensor) -> Matrix:
    """A matrix as it is stored: quantised in groups of 32 if the format has them, else as `dequantise` gives it."""
    return _quantised(tensor) if is_group_format(tensor.kind) else dequantise(tensor)


def _quantised(tensor: GGUFTensor) -> QuantisedMatrix:
    *rows, columns = tensor.shape
    found = quantised_matrix(tensor.data, tensor.kind, (math.prod(rows), columns))
    if not has_finite_tables(tensor.data, tensor.kind, found):
        raise not_finite(tensor.name)
    return found


def _values(tensor: GGUFTensor) -> torch.Tensor:
    if tensor.kind in _PLAIN:
        aligned = tensor.data.ctypes.data % 8 == 0  # as nearly all files have it: then the map itself is the tensor
        return torch.from_numpy(tensor.data if aligned else tensor.data.copy()).view(_PLAIN[tensor.kind])
    try:
        return torch.from_numpy(gguf.quants.dequantize(tensor.data.reshape(-1), tensor.kind))
    except (NotImplementedError, ValueError) as error:  # how the gguf package says: no such kind, no such shape
        raise ModelLoadError(
            f"tensor {tensor.name} is stored as {tensor.kind.name}, which can't be read ({error}); "
            "use a Q4_1, Q8_0, K-quant, F16 or BF16 file of this model"
        ) from error
