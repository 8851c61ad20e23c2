"""A layer's keys and values in plain torch, [block, KV head, token, D]: floats, or bytes with a scale a token and head.

Bytes are int8, or fp8 (e4m3; Micikevicius et al. 2022, arXiv:2209.05433) without its subnormals, so that a kernel can
decode it by a shift and a sum: what is below 2^-6 where a token's largest value is 448 becomes 0. Knows no attention.
"""

import torch

from kernels.batch import BLOCK_SIZE
from kernels.operations import CacheDtype, HeadShape

Layer = tuple[torch.Tensor, ...]  # keys, values; if quantised, their scales [block, KV head, token, 1] float32
_SCALE_BYTES = 4
_LARGEST = {"int8": 127.0, "fp8": 448.0}
_SMALLEST_FP8 = 2.0**-6


def token_bytes(heads: HeadShape, dtype: CacheDtype, floats: torch.dtype) -> int:
    """Of one token in one layer."""
    per_head = heads.head_dim * floats.itemsize if dtype == "auto" else heads.head_dim + _SCALE_BYTES
    return 2 * heads.num_kv_heads * per_head


def new_layer(num_blocks: int, heads: HeadShape, dtype: CacheDtype, floats: torch.dtype, device: torch.device) -> Layer:
    def room(columns: int, kind: torch.dtype) -> torch.Tensor:
        return torch.zeros(num_blocks, heads.num_kv_heads, BLOCK_SIZE, columns, dtype=kind, device=device)

    if dtype == "auto":
        return room(heads.head_dim, floats), room(heads.head_dim, floats)
    kind = torch.int8 if dtype == "int8" else torch.uint8
    return (*(room(heads.head_dim, kind) for _ in range(2)), *(room(1, torch.float32) for _ in range(2)))


def put(layer: Layer, dtype: CacheDtype, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    """keys, values [T, KV, D] into `slots` [T]."""
    block, offset = slots // BLOCK_SIZE, slots % BLOCK_SIZE
    for i, fresh in enumerate((keys, values)):
        if dtype == "auto":
            layer[i][block, :, offset] = fresh
        else:
            layer[i][block, :, offset], layer[i + 2][block, :, offset] = _encode(fresh.float(), dtype)


def take(layer: Layer, dtype: CacheDtype, blocks: torch.Tensor) -> list[torch.Tensor]:
    """Keys and values [n, KV, w * BLOCK_SIZE, D] float32 of blocks [n, w]."""
    if dtype == "auto":
        floats = [kind[blocks].float() for kind in layer]
    else:
        floats = [_decode(layer[i][blocks], dtype) * layer[i + 2][blocks] for i in range(2)]
    return [kind.transpose(1, 2).flatten(2, 3) for kind in floats]


def _encode(x: torch.Tensor, dtype: CacheDtype) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., D] float32 -> codes and scales [..., 1]."""
    scales = x.abs().amax(-1, keepdim=True) / _LARGEST[dtype]
    relative = torch.where(scales > 0, x / scales, 0.0)
    if dtype == "int8":
        return relative.round().to(torch.int8), scales
    codes = relative.to(torch.float8_e4m3fn)
    return torch.where(codes.float().abs() < _SMALLEST_FP8, 0, codes.view(torch.uint8)), scales


def _decode(codes: torch.Tensor, dtype: CacheDtype) -> torch.Tensor:
    return codes.float() if dtype == "int8" else codes.view(torch.float8_e4m3fn).float()
