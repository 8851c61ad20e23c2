"""Matrices in the panels that the products read (product.h): codes stay codes, floats become bfloat16."""

import ctypes
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields

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
    def of(cls, matrix: QuantisedMatrix) -> "Layout":
        return cls(*astuple(matrix.layout))


class _PackCodesArguments(ctypes.Structure):
    _fields_ = [
        ("codes", ctypes.c_void_p),
        ("layout", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("minimums", ctypes.c_void_p),
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

    bf16_copy: of codes, for prompts' rows: the same numbers, ready.
    """
    memory: list[torch.Tensor] = []
    parts = [
        _pack_codes(machine, matrix, memory, bf16_copy=bf16_copy)
        if isinstance(matrix, QuantisedMatrix)
        else _pack_floats(machine, matrix, memory)
        for matrix in matrices
    ]
    return Panels((Part * len(parts))(*parts), memory)


def _pack_codes(machine: Machine, matrix: QuantisedMatrix, memory: list[torch.Tensor], *, bf16_copy: bool) -> Part:
    outputs, inputs = matrix.shape
    scales, minimums, unit = _half_tables(matrix.scales, matrix.minimums)
    num_panels = -(-outputs // PANEL)
    group_bytes = GROUP_SIZE * PANEL * matrix.bits // 8 + 2 * PANEL * scales.element_size()
    panels = machine.weights.take(num_panels * (inputs // GROUP_SIZE) * group_bytes)
    copy = machine.weights.take(num_panels * PANEL * inputs * torch.bfloat16.itemsize) if bf16_copy else None
    memory.extend(part for part in (panels, copy) if part is not None)
    machine.prepare(
        "pack_codes",
        _PackCodesArguments,
        codes=matrix.codes.contiguous(),
        layout=Layout.of(matrix),
        scales=scales,
        minimums=minimums,
        panels=panels,
        copy=copy,
        num_outputs=outputs,
        num_inputs=inputs,
        bits=matrix.bits,
        unit=unit,
    )
    return Part(panels.data_ptr(), None if copy is None else copy.data_ptr(), outputs, matrix.bits, unit)


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
        scales, minimums = (table.contiguous() for table in tables)
        return scales, minimums, 1.0
    largest = max(float(table.abs().max()) for table in tables)
    unit = 1.0
    if 0.0 < largest < float("inf"):
        unit = 2.0 ** max(int(torch.tensor(largest / _LARGEST_HALF).log2().ceil()), -100)
    scales, minimums = ((table.float() / unit).half().contiguous() for table in tables)
    return scales, minimums, unit
