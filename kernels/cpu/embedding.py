"""The table of token embeddings, in the smallest form that loses nothing it had: the Python side of embedding.cpp."""

import ctypes
from dataclasses import dataclass

import torch

from kernels.cpu.packing import Layout
from kernels.cpu.program import Machine
from kernels.matrix import Matrix
from kernels.operations import PackedWeight


class _EmbeddingArguments(ctypes.Structure):
    _fields_ = [
        ("token_ids", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("minimums", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("size", ctypes.c_int),
        ("scale", ctypes.c_float),
    ]


class _PackEmbeddingArguments(ctypes.Structure):
    _fields_ = [
        ("codes", ctypes.c_void_p),
        ("layout", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("vocabulary", ctypes.c_int),
        ("size", ctypes.c_int),
        ("bits", ctypes.c_int),
    ]


@dataclass(slots=True, frozen=True)
class _Table:
    kernel: str
    table: torch.Tensor
    scales: torch.Tensor | None = None
    minimums: torch.Tensor | None = None


def pack_embedding(machine: Machine, matrix: Matrix) -> PackedWeight:
    """[V, C]: codes stay codes, two in a byte if they fit; floats become bfloat16."""
    if isinstance(matrix, torch.Tensor):
        return PackedWeight(_Table("embed_bf16", matrix.to(torch.bfloat16).contiguous()), *matrix.shape)
    rows, size = matrix.shape
    table = machine.weights.take(rows * size * matrix.bits // 8)
    machine.prepare(
        "pack_embedding",
        _PackEmbeddingArguments,
        codes=matrix.codes.contiguous(),
        layout=Layout.of(matrix),
        table=table,
        vocabulary=rows,
        size=size,
        bits=matrix.bits,
    )
    kernel = "embed_half_bytes" if matrix.bits == 4 else "embed_bytes"
    scales, minimums = (each.float().contiguous() for each in (matrix.scales, matrix.minimums))
    return PackedWeight(_Table(kernel, table, scales, minimums), rows, size)


def embed(machine: Machine, token_ids: torch.Tensor, packed: PackedWeight, scale: float) -> torch.Tensor:
    table: _Table = packed.data
    rows, size = len(token_ids), packed.num_inputs
    out = machine.empty(rows, size, torch.float32)
    machine.call(
        table.kernel,
        _EmbeddingArguments,
        (rows, 0),
        token_ids=token_ids,
        table=table.table,
        scales=table.scales,
        minimums=table.minimums,
        out=out,
        size=size,
        scale=scale,
    )
    return out
