"""GGUF tensors as floats or as quantised matrices; what is rare is left to the `gguf` package. Knows no model."""

import math

import gguf
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine.errors import ModelLoadError
from engine.loader.gguf_file import REMEDY, GGUFTensor
from engine.loader.quantised import is_group_format, quantised_matrix
from kernels.matrix import Matrix, QuantisedMatrix, dense

_PLAIN = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16, Kind.F64: torch.float64}


def dequantise(tensor: GGUFTensor) -> torch.Tensor:
    """The tensor's values, float32, of `tensor.shape`; F16 and BF16 keep their type. Raises ModelLoadError."""
    if is_group_format(tensor.kind):
        return dense(_quantised(tensor)).view(tensor.shape)
    return _finite(_values(tensor), tensor.name).view(tensor.shape)


def matrix(tensor: GGUFTensor) -> Matrix:
    """A matrix as it is stored: quantised in groups of 32 if the format has them, else as `dequantise` gives it."""
    return _quantised(tensor) if is_group_format(tensor.kind) else dequantise(tensor)


def _quantised(tensor: GGUFTensor) -> QuantisedMatrix:
    *rows, columns = tensor.shape
    found = quantised_matrix(tensor.data, tensor.kind, (math.prod(rows), columns))
    _finite(found.scales, tensor.name)
    _finite(found.minimums, tensor.name)
    return found


def _values(tensor: GGUFTensor) -> torch.Tensor:
    if tensor.kind in _PLAIN:
        aligned = tensor.data.ctypes.data % 8 == 0  # as nearly all files have it: then the map itself is the tensor
        return torch.from_numpy(tensor.data if aligned else tensor.data.copy()).view(_PLAIN[tensor.kind])
    try:
        return torch.from_numpy(gguf.quants.dequantize(tensor.data.reshape(-1), tensor.kind))
    except (NotImplementedError, ValueError) as error:
        raise ModelLoadError(
            f"tensor {tensor.name} is stored as {tensor.kind.name}, which can't be read ({error}); "
            "use a Q4_1, Q8_0, K-quant, F16 or BF16 file of this model"
        ) from error


def _finite(values: torch.Tensor, name: str) -> torch.Tensor:
    # One pass without a temporary: a sum is finite only if all values are, and that of honest weights is.
    if not bool(torch.isfinite(values.sum(dtype=torch.float32))):
        raise ModelLoadError(f"tensor {name} holds values that are not finite; {REMEDY}")
    return values
