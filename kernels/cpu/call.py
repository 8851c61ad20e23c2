"""A kernel's call and the rows of a step, as C++ takes them. Knows no kernel."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from kernels.batch import TokenBatch


class Step(ctypes.Structure):
    """Step of worker.h."""

    _fields_ = [
        ("num_rows", ctypes.c_int),
        ("num_generated", ctypes.c_int),
        ("table_width", ctypes.c_int),
        ("positions", ctypes.c_void_p),
        ("sequences", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
    ]


class Operation(ctypes.Structure):
    _fields_ = [("kernel", ctypes.c_void_p), ("arguments", ctypes.c_void_p)]


Rows = TokenBatch | tuple[int, int]  # a step's rows: all about them, or just (num_rows, num_generated)


def step_of(rows: Rows) -> Step:
    if isinstance(rows, tuple):
        return Step(*rows)
    return Step(
        rows.num_rows,
        rows.num_generated,
        rows.block_tables.shape[1],
        rows.positions.data_ptr(),
        rows.sequences.data_ptr(),
        rows.slots.data_ptr(),
        rows.block_tables.data_ptr(),
    )


class Call:
    """One kernel's call.

    values: by the names of its arguments' fields. Tensors (or None), structures and arrays of them become pointers;
    numbers stay numbers.
    """

    def __init__(self, kernel: str, address: int, arguments: type[ctypes.Structure], values: dict[str, Any]) -> None:
        self.kernel = kernel
        self._address = address
        self._arguments = arguments
        self._values = values  # kept: what pointers point to must live as long as the call
        self.tensors = [value for value in values.values() if isinstance(value, torch.Tensor)]

    def bind(self, address_of: Callable[[torch.Tensor], int]) -> Operation:
        def plain(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return address_of(value)
            return ctypes.addressof(value) if isinstance(value, ctypes.Structure | ctypes.Array) else value

        self._bound = self._arguments(**{name: plain(value) for name, value in self._values.items()})
        return Operation(self._address, ctypes.addressof(self._bound))
