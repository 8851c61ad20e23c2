"""Products of activations with packed weights: the Python side of product_linear.cpp and product_experts.cpp."""

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from kernels.batch import TokenBatch
from kernels.cpu.call import Rows
from kernels.cpu.packing import PANEL, Panels, pack_panels
from kernels.cpu.program import Machine
from kernels.matrix import GROUP_SIZE, Matrix
from kernels.operations import ExpertRule, PackedWeight

_ROW_TILE = 16


_ROW_BUFFERS = [
    (name, ctypes.c_void_p) for name in ("codes", "scales", "sums", "tiles")
]  # RowBuffers of product_roles.h


class _LinearArguments(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        ("parts", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        *_ROW_BUFFERS,
        ("num_parts", ctypes.c_int),
        ("num_inputs", ctypes.c_int),
        ("num_outputs", ctypes.c_int),
        ("float_result", ctypes.c_int),
    ]


@dataclass(slots=True, frozen=True)
class Linear:
    panels: Panels
    bias: torch.Tensor | None  # float32; the kernel reads whole panels of it


class _ExpertsArguments(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "scores", "gate_up", "down", "y")),
        *((name, ctypes.c_void_p) for name in ("chosen", "shares", "places", "sorted_rows", "groups", "num_groups")),
        *(("x_" + name, kind) for name, kind in _ROW_BUFFERS),
        *(("hidden_" + name, kind) for name, kind in _ROW_BUFFERS),
        *((name, ctypes.c_void_p) for name in ("gates", "hidden", "results")),
        *((name, ctypes.c_int) for name in ("num_experts", "top_k", "size", "inner", "normalise", "gelu")),
    ]


@dataclass(slots=True, frozen=True)
class _Experts:
    gate_up: Panels  # of each expert the gate, then what it gates
    down: Panels
    num_experts: int
    inner: int


def pack(
    machine: Machine, parts: Sequence[Matrix], bias: torch.Tensor | None = None, *, bf16_copy: bool = False
) -> PackedWeight:
    """[N_i, K] each, stacked; bias [sum of N_i]. bf16_copy: see pack_panels."""
    outputs, inputs = sum(part.shape[0] for part in parts), parts[0].shape[1]
    padded = None if bias is None else torch.nn.functional.pad(bias.float(), (0, PANEL - 1)).contiguous()
    return PackedWeight(Linear(pack_panels(machine, parts, bf16_copy=bf16_copy), padded), outputs, inputs)


def linear(machine: Machine, x: torch.Tensor, weight: PackedWeight, batch: TokenBatch) -> torch.Tensor:
    """x [T, K] bfloat16 -> [T, N] bfloat16."""
    return _product(machine, x, weight, batch, torch.bfloat16)


def logits(machine: Machine, x: torch.Tensor, weight: PackedWeight, num_generated: int) -> torch.Tensor:
    """x [R, K] bfloat16 -> [R, N] float32."""
    return _product(machine, x, weight, (len(x), num_generated), torch.float32)


def _product(machine: Machine, x: torch.Tensor, weight: PackedWeight, rows: Rows, dtype: torch.dtype) -> torch.Tensor:
    packed: Linear = weight.data
    y = machine.empty(len(x), weight.num_outputs, dtype)
    machine.call(
        "linear",
        _LinearArguments,
        rows,
        x=x,
        parts=packed.panels.parts,
        bias=packed.bias,
        y=y,
        **_row_buffers(machine, len(x), weight.num_inputs, has_codes=packed.panels.has_codes),
        num_parts=len(packed.panels.parts),
        num_inputs=weight.num_inputs,
        num_outputs=weight.num_outputs,
        float_result=dtype == torch.float32,
    )
    return y


def pack_experts(
    machine: Machine, gate_up: Iterable[tuple[Matrix, Matrix]], down: Iterable[Matrix], *, bf16_copy: bool = False
) -> PackedWeight:
    """Of each expert gate [I, C], up [I, C] and down [C, I]."""
    first = pack_panels(machine, chain.from_iterable(gate_up), bf16_copy=bf16_copy)
    second = pack_panels(machine, down, bf16_copy=bf16_copy)
    inner, size = first.parts[0].num_outputs, second.parts[0].num_outputs
    return PackedWeight(_Experts(first, second, len(second.parts), inner), size, size)


def experts(
    machine: Machine,
    x: torch.Tensor,
    scores: torch.Tensor,
    weight: PackedWeight,
    rule: ExpertRule,
    batch: TokenBatch,
) -> torch.Tensor:
    """x [T, C], scores [T, E] bfloat16 -> [T, C] bfloat16."""
    packed: _Experts = weight.data
    rows, size, inner = len(x), weight.num_inputs, packed.inner
    pairs = rows * rule.top_k  # of a token and an expert
    groups = min(packed.num_experts, pairs)
    y = machine.empty(rows, size, torch.bfloat16)
    x_buffers = _row_buffers(machine, pairs, size, groups=groups, has_codes=packed.gate_up.has_codes)
    hidden_buffers = _row_buffers(machine, pairs, inner, groups=groups, has_codes=packed.down.has_codes)
    machine.call(
        "experts",
        _ExpertsArguments,
        batch,
        x=x,
        scores=scores,
        gate_up=packed.gate_up.parts,
        down=packed.down.parts,
        y=y,
        chosen=machine.empty(rows, rule.top_k, torch.int32),
        shares=machine.empty(rows, rule.top_k, torch.float32),
        places=machine.empty(rows, rule.top_k, torch.int32),
        sorted_rows=machine.empty(rows, rule.top_k, torch.int32),
        groups=machine.empty(groups, 4, torch.int32),
        num_groups=machine.empty(1, 1, torch.int32),
        **{"x_" + name: buffer for name, buffer in x_buffers.items()},
        **{"hidden_" + name: buffer for name, buffer in hidden_buffers.items()},
        gates=machine.empty(pairs, 2 * inner, torch.bfloat16),
        hidden=machine.empty(pairs, inner, torch.bfloat16),
        results=machine.empty(pairs, size, torch.float32),
        num_experts=packed.num_experts,
        top_k=rule.top_k,
        size=size,
        inner=inner,
        normalise=rule.normalise,
        gelu=rule.activation == "gelu_tanh",
    )
    return y


def _row_buffers(
    machine: Machine, rows: int, inputs: int, *, has_codes: bool, groups: int = 1
) -> dict[str, torch.Tensor | None]:
    """Room for rows of any roles in so many groups, each role of each in whole tiles."""
    num_scales = -(-inputs // GROUP_SIZE)
    buffers: dict[str, torch.Tensor | None] = {"codes": None, "scales": None, "sums": None}
    if has_codes:
        whole_tiles = rows + groups * _ROW_TILE
        buffers["codes"] = machine.empty(whole_tiles, inputs, torch.int8)
        buffers["scales"] = machine.empty(whole_tiles, num_scales, torch.float32)
        buffers["sums"] = machine.empty(whole_tiles, num_scales, torch.float32)
    buffers["tiles"] = machine.empty(rows + groups * 2 * _ROW_TILE, num_scales * GROUP_SIZE, torch.bfloat16)
    return buffers
