"""GGUF's group formats -> QuantisedMatrix: codes are unpacked, scales multiplied out, no weight becomes a float.

Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. Little-endian. Knows no names.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind

from kernels.matrix import GROUP_SIZE, QuantisedMatrix

Bytes = npt.NDArray[np.uint8]
Groups = tuple[Bytes, torch.Tensor, torch.Tensor]  # codes [n * 32]; scales, minimums [n] float16 or float32

_LOW_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_CHUNK = 16384  # blocks unpacked at a time: their temporaries stay in a core's cache


@dataclass(frozen=True, slots=True)
class _Format:
    bits: int
    unpack: Callable[[Bytes], Groups]  # of blocks [n, bytes of a block]


def is_group_format(kind: Kind) -> bool:
    return kind in _FORMATS


def quantised_matrix(raw: Bytes, kind: Kind, shape: tuple[int, int]) -> QuantisedMatrix:
    """raw: the whole blocks of a [N, K] matrix. `dequantise()` of the result is what ggml computes, bit for bit."""
    form = _FORMATS[kind]
    codes, scales, minimums = form.unpack(raw.reshape(-1, GGML_QUANT_SIZES[kind][1]))
    groups = (shape[0], shape[1] // GROUP_SIZE)
    return QuantisedMatrix(
        form.bits,
        torch.from_numpy(codes).view(shape),
        scales.view(groups),
        minimums.view(groups),
    )


def _q4_0(blocks: Bytes) -> Groups:
    return _nibbles(blocks, 2, 16), *_shifted(blocks, 8)


def _q4_1(blocks: Bytes) -> Groups:
    return _nibbles(blocks, 4, 16), _half(blocks, 0), _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Groups:
    return _with_fifth_bit(_nibbles(blocks, 6, 16), blocks[:, 2:6]), *_shifted(blocks, 16)


def _q5_1(blocks: Bytes) -> Groups:
    return _with_fifth_bit(_nibbles(blocks, 8, 16), blocks[:, 4:8]), _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Groups:
    codes = np.ascontiguousarray(_fields(blocks, 2, 32)).view(np.uint64)
    codes ^= np.uint64(0x8080808080808080)  # int8 plus 128
    return codes.view(np.uint8), *_shifted(blocks, 128)


def _q4_k(blocks: Bytes) -> Groups:
    scales, minimums = _k_scales(blocks)
    codes = np.concatenate([_nibbles(blocks, 16 + 32 * pair, 32).reshape(-1, 64) for pair in range(4)], axis=1)
    return codes.reshape(-1), scales, minimums


def _q5_k(blocks: Bytes) -> Groups:
    scales, minimums = _k_scales(blocks)
    codes = np.concatenate([_nibbles(blocks, 48 + 32 * pair, 32).reshape(-1, 64) for pair in range(4)], axis=1)
    fifth = np.ascontiguousarray(blocks[:, 16:48])  # bit g of byte i belongs to code i of group g
    for group, part in enumerate(np.split(codes, 8, axis=1)):
        part |= ((fifth >> np.uint8(group)) & np.uint8(1)) << np.uint8(4)
    return codes.reshape(-1), scales, minimums


_FORMATS = {
    Kind.Q4_0: _Format(4, _q4_0),
    Kind.Q4_1: _Format(4, _q4_1),
    Kind.Q5_0: _Format(8, _q5_0),
    Kind.Q5_1: _Format(8, _q5_1),
    Kind.Q8_0: _Format(8, _q8_0),
    Kind.Q4_K: _Format(4, _q4_k),
    Kind.Q5_K: _Format(8, _q5_k),
}


def _fields(blocks: Bytes, start: int, size: int) -> npt.NDArray[np.void]:
    """Bytes [start, start + size) of each block as one item [n]: numpy then moves them at once, not one by one."""
    return np.ndarray((len(blocks),), f"V{size}", blocks, start, (blocks.shape[1],))


def _half(blocks: Bytes, start: int) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(_fields(blocks, start, 2)).view(np.float16))


def _shifted(blocks: Bytes, shift: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales, and the minimums of codes that were made unsigned by adding `shift`, a power of 2: exact."""
    scales = _half(blocks, 0)
    minimums = scales * -shift
    return scales, minimums if bool(torch.isfinite(minimums).all()) else scales.float() * -shift


def _nibbles(blocks: Bytes, start: int, size: int) -> Bytes:
    """`size` bytes of each block -> [n * 2 * size] codes 0..15: of each block all low halves, then all high halves."""
    packed = _fields(blocks, start, size)
    codes = np.empty((len(packed), 2), packed.dtype)
    for first in range(0, len(packed), _CHUNK):
        chunk = np.ascontiguousarray(packed[first : first + _CHUNK]).view(np.uint64)
        codes[first : first + _CHUNK, 0] = (chunk & _LOW_NIBBLES).view(packed.dtype)
        chunk >>= np.uint64(4)
        chunk &= _LOW_NIBBLES
        codes[first : first + _CHUNK, 1] = chunk.view(packed.dtype)
    return codes.view(np.uint8).reshape(-1)


def _with_fifth_bit(codes: Bytes, bits: Bytes) -> Bytes:
    """bits [n, 4]: bit i of the 32 belongs to code i of the block."""
    codes |= np.unpackbits(np.ascontiguousarray(bits), bitorder="little") << np.uint8(4)
    return codes


def _k_scales(blocks: Bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks of 8 groups: halves d and dmin, then 12 bytes of eight 6-bit scales and eight 6-bit minimums.

    The first four of each lie in the low bits of bytes 0-3 and 4-7. Of the last four, the low halves lie in bytes 8-11,
    the two highest bits atop the first eight bytes.
    """
    first, second, third = (blocks[:, start : start + 4] for start in (4, 8, 12))
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=1)
    minimums = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=1)
    d, dmin = (_half(blocks, start).float()[:, None] for start in (0, 2))
    return (d * torch.from_numpy(scales)).view(-1), (-dmin * torch.from_numpy(minimums)).view(-1)
