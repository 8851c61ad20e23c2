"""Rows of the table of token embeddings: the Python side of embedding.cpp."""

import ctypes

import torch

from kernels.cpu.products import Linear
from kernels.cpu.program import Machine
from kernels.operations import PackedWeight


class _EmbeddingArguments(ctypes.Structure):
    _fields_ = [
        ("token_ids", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("size", ctypes.c_int),
        ("scale", ctypes.c_float),
    ]


def embed(machine: Machine, token_ids: torch.Tensor, packed: PackedWeight, scale: float) -> torch.Tensor:
    """token_ids [T] int64; `packed` [V, C], of one matrix, is what `products.pack` made of it -> [T, C] float32."""
    table: Linear = packed.data
    rows, size = len(token_ids), packed.num_inputs
    out = machine.empty(rows, size, torch.float32)
    machine.call(
        "embed",
        _EmbeddingArguments,
        (rows, 0),
        token_ids=token_ids,
        table=table.panels.parts,
        out=out,
        size=size,
        scale=scale,
    )
    return out
