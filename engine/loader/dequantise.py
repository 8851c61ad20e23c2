"""GGUF's block formats to float32. The frequent ones here, in few passes, the others by the `gguf` package.

Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h (blocks of 32 weights with half scales).
"""

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine.errors import ModelLoadError
from engine.loader.gguf_file import REMEDY, GGUFTensor

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_PLAIN = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16, Kind.F64: torch.float64}


def dequantise(tensor: GGUFTensor) -> torch.Tensor:
    """The tensor's values, float32, of `tensor.shape`; F16 and BF16 keep their type. Raises ModelLoadError."""
    if tensor.kind in _PLAIN:
        values = torch.from_numpy(tensor.data.copy()).view(_PLAIN[tensor.kind])
    elif tensor.kind in _BLOCKS:
        values = torch.from_numpy(_BLOCKS[tensor.kind](tensor.data))
    else:
        try:
            values = torch.from_numpy(gguf.quants.dequantize(tensor.data.reshape(-1), tensor.kind))
        except (NotImplementedError, ValueError) as error:
            raise ModelLoadError(
                f"tensor {tensor.name} is stored as {tensor.kind.name}, which can't be read ({error}); "
                "use a Q4_1, Q8_0, K-quant, F16 or BF16 file of this model"
            ) from error
    if not bool(torch.isfinite(values.sum(dtype=torch.float32))):
        raise ModelLoadError(f"tensor {tensor.name} holds values that are not finite; {REMEDY}")
    return values.view(tensor.shape)


def _half(blocks: Bytes, start: int) -> Floats:
    return blocks[:, start : start + 2].copy().view(np.float16).astype(np.float32)  # [n, 1]


def _nibbles(packed: Bytes) -> Floats:
    """[n, 16] bytes -> [n, 32] values 0..15: low halves are weights 0..15, high halves 16..31."""
    packed = np.ascontiguousarray(packed)
    values = np.empty((len(packed), 32), np.float32)
    values[:, :16] = packed & 15
    values[:, 16:] = packed >> 4
    return values


def _q4_0(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 18)
    values = _nibbles(blocks[:, 2:])
    values -= 8.0
    values *= _half(blocks, 0)
    return values


def _q4_1(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 20)
    values = _nibbles(blocks[:, 4:])
    values *= _half(blocks, 0)
    values += _half(blocks, 2)
    return values


def _q8_0(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 34)
    values = blocks[:, 2:].view(np.int8).astype(np.float32)
    values *= _half(blocks, 0)
    return values


_BLOCKS = {Kind.Q4_0: _q4_0, Kind.Q4_1: _q4_1, Kind.Q8_0: _q8_0}
