"""Matrices in the panels that the products read (product.h): codes stay codes, floats become bfloat16."""

import ctypes
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from functools import cache
from typing import Any

import torch

from kernels.code_layout import CodeLayout
from kernels.cpu.program import Machine
from kernels.matrix import GROUP_SIZE, Matrix, QuantisedMatrix

PANEL = 16  # outputs
_BLOCK = 2 * PANEL  # panels of floats come in pairs
_LARGEST_HALF = 2.0**14  # up to here the largest scale may be: room below 65504 for what rounds up


class Part(ctypes.Structure):
    """Part of product.h."""

    _fields_ = [
        ("panels", ctypes.c_void_p),
        ("copy", ctypes.c_void_p),
        ("num_outputs", ctypes.c_int),
        ("bits", ctypes.c_int),
        ("unit", ctypes.c_float),
    ]


class Layout(ctypes.Structure):
    """CodeLayout of code_layout.h."""

    _fields_ = [(field.name, ctypes.c_int) for field in fields(CodeLayout)]

    @classmethod
    @cache
    def of(cls, layout: CodeLayout) -> "Layout":
        return cls(*astuple(layout))


def _group_table_fields(name: str) -> list[tuple[str, type]]:
    """GroupTable of product_packing.cpp."""
    return [(name, ctypes.c_void_p), (f"{name}_row_stride", ctypes.c_int64), (f"{name}_group_stride", ctypes.c_int64)]


class _PackCodesArguments(ctypes.Structure):
    _fields_ = [
        ("codes", ctypes.c_void_p),
        ("layout", ctypes.c_void_p),
        *_group_table_fields("scales"),
        *_group_table_fields("minimums"),
        ("panels", ctypes.c_void_p),
        ("num_outputs", ctypes.c_int),
        ("num_inputs", ctypes.c_int),
        ("bits", ctypes.c_int),
    ]


class _CopyCodesArguments(ctypes.Structure):
    _fields_ = [
        ("panels", ctypes.c_void_p),
        ("copy", ctypes.c_void_p),
        ("num_outputs", ctypes.c_int),
        ("num_inputs", ctypes.c_int),
        ("bits", ctypes.c_int),
        ("unit", ctypes.c_float),
    ]


class _PackFloatsArguments(ctypes.Structure):
    _fields_ = [
        ("weights", ctypes.c_void_p),
        ("panels", ctypes.c_void_p),
        ("num_outputs", ctypes.c_int),
        ("num_inputs", ctypes.c_int),
    ]


@dataclass(slots=True, frozen=True)
class Panels:
    """Matrices stacked by their outputs. `parts` points into `memory`."""

    parts: ctypes.Array[Part]
    memory: list[torch.Tensor]

    @property
    def has_codes(self) -> bool:
        return any(part.bits != 16 for part in self.parts)

    @property
    def has_floats(self) -> bool:
        return any(part.bits == 16 for part in self.parts)


def pack_panels(machine: Machine, matrices: Iterable[Matrix], *, bf16_copy: bool) -> Panels:
    """[N_i, K] each, taken one by one. Memory: a byte or half a byte a code and 4 bytes a group; 2 bytes a float.

    bf16_copy: of codes, for prompts' rows: the same numbers, ready. Made when all is packed, if in the background.
    """
    memory: list[torch.Tensor] = []
    parts = [
        _pack_codes(machine, matrix, memory, bf16_copy=bf16_copy)
        if isinstance(matrix, QuantisedMatrix)
        else _pack_floats(machine, matrix, memory)
        for matrix in matrices
    ]
    pointers = (Part * len(parts))(*parts)
    pointers.memory = memory  # type: ignore[attr-defined]  # whoever keeps these, as a recorded call does, keeps that
    return Panels(pointers, memory)


def _pack_codes(machine: Machine, matrix: QuantisedMatrix, memory: list[torch.Tensor], *, bf16_copy: bool) -> Part:
    outputs, inputs = matrix.shape
    scales, minimums, unit = _half_tables(matrix.scales, matrix.minimums)
    form = {"num_outputs": outputs, "num_inputs": inputs, "bits": matrix.bits}
    num_panels = -(-outputs // PANEL)
    group_bytes = GROUP_SIZE * PANEL * matrix.bits // 8 + 2 * PANEL * scales.element_size()
    panels = machine.weights.take(num_panels * (inputs // GROUP_SIZE) * group_bytes)
    memory.append(panels)
    machine.prepare(
        "pack_codes",
        _PackCodesArguments,
        codes=matrix.codes.contiguous(),
        layout=Layout.of(matrix.layout),
        **_group_table("scales", scales),
        **_group_table("minimums", minimums),
        panels=panels,
        **form,
    )
    if not bf16_copy:
        return Part(panels.data_ptr(), None, outputs, matrix.bits, unit)
    copy = machine.copies.take(num_panels * PANEL * inputs * torch.bfloat16.itemsize)
    memory.append(copy)
    machine.prepare_for_prompts("copy_codes", _CopyCodesArguments, panels=panels, copy=copy, unit=unit, **form)
    return Part(panels.data_ptr(), copy.data_ptr(), outputs, matrix.bits, unit)


def _group_table(name: str, table: torch.Tensor) -> dict[str, Any]:
    rows, groups = table.stride()
    return {name: table, f"{name}_row_stride": rows, f"{name}_group_stride": groups}


def _pack_floats(machine: Machine, matrix: torch.Tensor, memory: list[torch.Tensor]) -> Part:
    outputs, inputs = matrix.shape
    num_panels = -(-outputs // _BLOCK) * (_BLOCK // PANEL)
    panels = machine.weights.take(num_panels * PANEL * -(-inputs // GROUP_SIZE) * GROUP_SIZE * torch.bfloat16.itemsize)
    machine.prepare(
        "pack_floats",
        _PackFloatsArguments,
        weights=matrix.to(torch.bfloat16).contiguous(),
        panels=panels,
        num_outputs=outputs,
        num_inputs=inputs,
    )
    memory.append(panels)
    return Part(panels.data_ptr(), None, outputs, 16, 1.0)


def _half_tables(*tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Scales and minimums in float16, in a unit that is a power of 2: the file's own numbers wherever they are float16.

    Others (the K formats multiply two numbers) are rounded to 11 bits: a relative error below 2^-11, an eighth of what
    bfloat16 weights may lose. The unit brings the largest of them to the upper end of float16, so that small ones keep
    their bits.
    """
    if all(table.dtype == torch.float16 for table in tables):
        scales, minimums = tables
        return scales, minimums, 1.0
    largest = max(float(table.abs().max()) for table in tables)
    unit = 1.0
    if 0.0 < largest < float("inf"):
        unit = 2.0 ** max(int(torch.tensor(largest / _LARGEST_HALF).log2().ceil()), -100)
    scales, minimums = ((table.float() / unit).half() for table in tables)
    return scales, minimums, unit
