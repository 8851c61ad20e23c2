"""The paged KV cache, and attention over it: the Python side of cache.h, rope.cpp and attention.cpp.

A layer of the cache is one tensor of pages, and one of scales where the elements are bytes.
"""

import ctypes
import math

import torch

from kernels.batch import BLOCK_SIZE, TokenBatch
from kernels.cpu.memory import huge_pages
from kernels.cpu.program import Machine
from kernels.operations import AttentionRule, CacheDtype, HeadNorms, HeadShape, KVCache, RotaryTables

_TYPES: dict[CacheDtype, tuple[int, torch.dtype]] = {
    "auto": (0, torch.bfloat16),
    "int8": (1, torch.int8),
    "fp8": (2, torch.uint8),
}
_MAX_GROUP = 16  # MAX_GROUP of attention.cpp
_MAX_PARTIALS = 8 * 8  # its MAX_SHARED_ROWS * MAX_PARTS


class _Cache(ctypes.Structure):
    _fields_ = [
        ("pages", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("num_kv_heads", ctypes.c_int),
        ("head_dim", ctypes.c_int),
    ]


class _Rule(ctypes.Structure):
    _fields_ = [("scale", ctypes.c_float), ("softcap", ctypes.c_float), ("window", ctypes.c_int)]


class _RopeArguments(ctypes.Structure):
    _fields_ = [
        ("qkv", ctypes.c_void_p),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("cache", ctypes.c_void_p),
        ("query_norm", ctypes.c_void_p),
        ("key_norm", ctypes.c_void_p),
        ("eps", ctypes.c_float),
        ("num_heads", ctypes.c_int),
        ("rotary_dim", ctypes.c_int),
    ]


class _AttentionArguments(ctypes.Structure):
    _fields_ = [
        ("qkv", ctypes.c_void_p),
        ("cache", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("partials", ctypes.c_void_p),
        ("num_heads", ctypes.c_int),
        ("rule", ctypes.c_void_p),
    ]


def supports(heads: HeadShape) -> bool:
    return heads.head_dim % 16 == 0 and heads.head_dim <= 256 and heads.num_heads // heads.num_kv_heads <= _MAX_GROUP


def block_bytes(num_layers: int, heads: HeadShape, dtype: CacheDtype) -> int:
    scale_bytes = 0 if dtype == "auto" else 4
    token_bytes = heads.head_dim * _TYPES[dtype][1].itemsize + scale_bytes
    return num_layers * 2 * heads.num_kv_heads * BLOCK_SIZE * token_bytes


def new_cache(num_layers: int, num_blocks: int, heads: HeadShape, dtype: CacheDtype) -> KVCache:
    def layer() -> tuple[torch.Tensor, ...]:
        pages = _room((num_blocks, heads.num_kv_heads, 2, BLOCK_SIZE * heads.head_dim), _TYPES[dtype][1])
        if dtype == "auto":
            return (pages,)
        return pages, _room((num_blocks, heads.num_kv_heads, 2, BLOCK_SIZE), torch.float32)

    return KVCache(dtype, [layer() for _ in range(num_layers)])


def rope_and_store(
    machine: Machine,
    qkv: torch.Tensor,
    rotary: RotaryTables,
    batch: TokenBatch,
    cache: KVCache,
    layer: int,
    heads: HeadShape,
    norms: HeadNorms | None,
) -> None:
    machine.call(
        "rope_and_store",
        _RopeArguments,
        batch,
        qkv=qkv,
        cos=rotary.cos,
        sin=rotary.sin,
        cache=_layer(cache, layer, heads),
        query_norm=None if norms is None else norms.query,
        key_norm=None if norms is None else norms.key,
        eps=0.0 if norms is None else norms.eps,
        num_heads=heads.num_heads,
        rotary_dim=2 * rotary.cos.shape[1],
    )


def paged_attention(
    machine: Machine,
    qkv: torch.Tensor,
    batch: TokenBatch,
    cache: KVCache,
    layer: int,
    heads: HeadShape,
    rule: AttentionRule,
) -> torch.Tensor:
    out = machine.empty(len(qkv), heads.num_heads * heads.head_dim, torch.bfloat16)
    machine.call(
        "paged_attention",
        _AttentionArguments,
        batch,
        qkv=qkv,
        cache=_layer(cache, layer, heads),
        out=out,
        partials=machine.empty(_MAX_PARTIALS * heads.num_heads, heads.head_dim + 2, torch.float32),
        num_heads=heads.num_heads,
        rule=_Rule(rule.scale, rule.softcap or 0.0, rule.window or 0),
    )
    return out


def _layer(cache: KVCache, layer: int, heads: HeadShape) -> _Cache:
    pages, *scales = cache.layers[layer]
    return _Cache(
        pages.data_ptr(),
        scales[0].data_ptr() if scales else None,
        _TYPES[cache.dtype][0],
        heads.num_kv_heads,
        heads.head_dim,
    )


def _room(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros, on huge pages: blocks lie anywhere, and small pages cost a table walk each."""
    return huge_pages(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)
