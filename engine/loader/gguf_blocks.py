"""GGUF's group formats -> QuantisedMatrix: codes stay in the file's own bytes, scales are multiplied out.

Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. Little-endian. Knows no names.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind

from engine.loader.checkpoint import are_finite
from kernels.code_layout import CodeLayout
from kernels.matrix import QuantisedMatrix

Bytes = npt.NDArray[np.uint8]
Tables = tuple[torch.Tensor, torch.Tensor]  # scales, minimums [groups] float16 or float32


@dataclass(frozen=True, slots=True)
class _Format:
    bits: int
    codes: CodeLayout
    tables: Callable[[Bytes], Tables]  # of blocks [n, bytes of a block]


def is_group_format(kind: Kind) -> bool:
    return kind in _FORMATS


def has_finite_tables(raw: Bytes, kind: Kind, found: QuantisedMatrix) -> bool:
    """`found`: what `quantised_matrix` made of the same."""
    form = _FORMATS[kind]
    if form.tables is _halves:  # pairs, looked at where they are: a half is infinite or none where its exponent is full
        pairs = np.ndarray((raw.size // form.codes.block_bytes,), np.uint32, raw, 0, (form.codes.block_bytes,))
        return bool((pairs & 0x7C007C00).view(np.uint16).max(initial=0) < 0x7C00)
    return are_finite(found.scales) and are_finite(found.minimums)


def quantised_matrix(raw: Bytes, kind: Kind, shape: tuple[int, int]) -> QuantisedMatrix:
    """raw: the whole blocks of a [N, K] matrix, which stay the result's. It is what ggml computes, bit for bit."""
    form = _FORMATS[kind]
    scales, minimums = form.tables(raw.reshape(-1, form.codes.block_bytes))
    rows = shape[0]
    return QuantisedMatrix(
        form.bits, torch.from_numpy(raw.reshape(rows, -1)), scales.view(rows, -1), minimums.view(rows, -1), form.codes
    )


def _halves(blocks: Bytes) -> Tables:
    return _half(blocks, 0), _half(blocks, 2)


def _shifted(shift: int) -> Callable[[Bytes], Tables]:
    """Scales, and the minimums of codes that are made unsigned by adding `shift`, a power of 2: exact."""

    def tables(blocks: Bytes) -> Tables:
        scales = _half(blocks, 0).contiguous()  # what follows takes ten times as long where they are
        minimums = scales * -shift
        return scales, minimums if are_finite(minimums) else scales.float() * -shift

    return tables


def _half(blocks: Bytes, start: int) -> torch.Tensor:
    """float16 [n]: two bytes of each block, where they are."""
    return torch.from_numpy(np.ndarray((len(blocks),), np.float16, blocks, start, (blocks.shape[1],)))


def _of_k_blocks(blocks: Bytes) -> Tables:
    """Blocks of 8 groups: halves d and dmin, then 12 bytes of eight 6-bit scales and eight 6-bit minimums.

    The first four of each lie in the low bits of bytes 0-3 and 4-7. Of the last four, the low halves lie in bytes 8-11,
    the two highest bits atop the first eight bytes.
    """
    first, second, third = (blocks[:, start : start + 4] for start in (4, 8, 12))
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=1)
    minimums = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=1)
    d, dmin = (_half(blocks, start).float()[:, None] for start in (0, 2))
    return (d * torch.from_numpy(scales)).view(-1), (-dmin * torch.from_numpy(minimums)).view(-1)


def _layout(kind: Kind, first: int, run: int = 0, *, groups: int = 1, flipped: int = 0, fifth: int = -1) -> CodeLayout:
    return CodeLayout(GGML_QUANT_SIZES[kind][1], groups, first, run, flipped, fifth)


_FORMATS = {
    Kind.Q4_0: _Format(4, _layout(Kind.Q4_0, 2, 16), _shifted(8)),
    Kind.Q4_1: _Format(4, _layout(Kind.Q4_1, 4, 16), _halves),
    Kind.Q5_0: _Format(8, _layout(Kind.Q5_0, 6, 16, fifth=2), _shifted(16)),
    Kind.Q5_1: _Format(8, _layout(Kind.Q5_1, 8, 16, fifth=4), _halves),
    Kind.Q8_0: _Format(8, _layout(Kind.Q8_0, 2, flipped=128), _shifted(128)),
    Kind.Q4_K: _Format(4, _layout(Kind.Q4_K, 16, 32, groups=8), _of_k_blocks),
    Kind.Q5_K: _Format(8, _layout(Kind.Q5_K, 48, 32, groups=8, fifth=16), _of_k_blocks),
}
