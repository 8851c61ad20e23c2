"""Sampling operations by the C++ kernels: the Python side of sampling.cpp."""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernels.cpu.program import Machine
from kernels.sampling import RowChoices, RowLogprobs, SparseRows

_POINTER = ctypes.c_void_p


class _ArgmaxArguments(ctypes.Structure):
    _fields_ = [("logits", _POINTER), ("token_ids", _POINTER), ("num_tokens", ctypes.c_int)]


class _ChooseArguments(ctypes.Structure):
    _fields_ = [
        ("logits", _POINTER),
        ("token_ids", _POINTER),
        ("temperature", _POINTER),
        ("top_k", _POINTER),
        ("top_p", _POINTER),
        ("min_p", _POINTER),
        ("uniform", _POINTER),
        ("mask_of_row", _POINTER),
        ("masks", _POINTER),
        ("bias_offsets", _POINTER),
        ("bias_token_ids", _POINTER),
        ("bias_values", _POINTER),
        ("counts_offsets", _POINTER),
        ("counts_token_ids", _POINTER),
        ("counts_values", _POINTER),
        ("repetition", _POINTER),
        ("frequency", _POINTER),
        ("presence", _POINTER),
        ("words_per_mask", ctypes.c_int64),
        ("num_tokens", ctypes.c_int),
    ]


class _LogprobArguments(ctypes.Structure):
    _fields_ = [
        ("logits", _POINTER),
        ("token_ids", _POINTER),
        ("chosen", _POINTER),
        ("top_ids", _POINTER),
        ("top", _POINTER),
        ("num_top", ctypes.c_int),
        ("num_tokens", ctypes.c_int),
    ]


class CpuSampling:
    """Implements `SamplingOperations`. A row is one worker's; what it draws depends on nothing else."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def argmax(self, logits: torch.Tensor) -> list[int]:
        num_rows, num_tokens = logits.shape
        ids = np.empty(num_rows, np.int32)
        self._call("argmax_rows", _ArgmaxArguments, logits, token_ids=ids, num_tokens=num_tokens)
        return ids.tolist()

    def choose(self, logits: torch.Tensor, rows: RowChoices) -> list[int]:
        num_rows, num_tokens = logits.shape
        ids = np.empty(num_rows, np.int32)
        self._call(
            "choose_rows",
            _ChooseArguments,
            logits,
            token_ids=ids,
            temperature=rows.temperature,
            top_k=rows.top_k,
            top_p=rows.top_p,
            min_p=rows.min_p,
            uniform=rows.uniform,
            num_tokens=num_tokens,
            **_shaping(rows, num_tokens),
        )
        return ids.tolist()

    def logprobs(self, logits: torch.Tensor, token_ids: list[int], num_top: int) -> RowLogprobs:
        num_rows, num_tokens = logits.shape
        found = RowLogprobs(
            np.empty(num_rows, np.float32),
            np.empty((num_rows, num_top), np.int32),
            np.empty((num_rows, num_top), np.float32),
        )
        self._call(
            "logprob_rows",
            _LogprobArguments,
            logits,
            token_ids=np.array(token_ids, np.int32),
            chosen=found.chosen,
            top_ids=found.top_ids,
            top=found.top,
            num_top=num_top,
            num_tokens=num_tokens,
        )
        return found

    def _call(self, kernel: str, arguments: type[ctypes.Structure], logits: torch.Tensor, **values: Any) -> None:
        assert logits.is_contiguous()
        pointers = {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in values.items()
        }
        self._machine.call(kernel, arguments, (len(logits), 0), logits=logits, **pointers)


def _shaping(rows: RowChoices, num_tokens: int) -> dict[str, npt.NDArray[Any] | int]:
    """The fields of sampling.cpp's Shaping; what is left out is null."""
    fields: dict[str, npt.NDArray[Any] | int] = {}
    if rows.masks is not None:
        words = rows.masks.bits.shape[1]
        assert words == -(-num_tokens // 32)
        fields |= {"mask_of_row": rows.masks.index, "masks": rows.masks.bits, "words_per_mask": words}
    if rows.bias is not None:
        fields |= _sparse("bias", rows.bias)
    if rows.penalties is not None:
        fields |= _sparse("counts", rows.penalties.counts)
        fields |= {name: getattr(rows.penalties, name) for name in ("repetition", "frequency", "presence")}
    return fields


def _sparse(name: str, sparse: SparseRows) -> dict[str, npt.NDArray[Any] | int]:
    parts = {"offsets": sparse.offsets, "token_ids": sparse.token_ids, "values": sparse.values}
    return {f"{name}_{part}": array for part, array in parts.items()}
