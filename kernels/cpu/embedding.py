"""The table of token embeddings, in the smallest form that loses nothing it had: the Python side of embedding.cpp."""

import ctypes
from dataclasses import dataclass

import torch

from kernels.cpu.program import Machine
from kernels.matrix import GROUP_SIZE, Matrix, QuantisedMatrix
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


@dataclass(slots=True, frozen=True)
class _Table:
    kernel: str
    table: torch.Tensor
    scales: torch.Tensor | None = None
    minimums: torch.Tensor | None = None


def pack_embedding(matrix: Matrix) -> PackedWeight:
    """[V, C]: codes stay codes, two in a byte if they fit; floats become bfloat16."""
    if isinstance(matrix, torch.Tensor):
        return PackedWeight(_Table("embed_bf16", matrix.to(torch.bfloat16).contiguous()), *matrix.shape)
    scales, minimums = (table.float().contiguous() for table in (matrix.scales, matrix.minimums))
    if matrix.bits == 4:
        return PackedWeight(_Table("embed_half_bytes", _in_pairs(matrix), scales, minimums), *matrix.shape)
    return PackedWeight(_Table("embed_bytes", matrix.codes.contiguous(), scales, minimums), *matrix.shape)


def _in_pairs(matrix: QuantisedMatrix) -> torch.Tensor:
    """[V, C / GROUP_SIZE, GROUP_SIZE / 2]: of each group, code i and code i + GROUP_SIZE / 2 in byte i."""
    lower, upper = matrix.codes.view(*matrix.scales.shape, GROUP_SIZE).chunk(2, dim=-1)
    return (lower | upper << 4).contiguous()


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
