"""What happens to a row on its own: norms, gate, softcap. The Python side of pointwise.cpp."""

import ctypes

import torch

from kernels.cpu.program import Machine
from kernels.operations import Activation


class _NormArguments(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("size", ctypes.c_int),
        ("eps", ctypes.c_float),
    ]


class _ResidualNormArguments(ctypes.Structure):
    _fields_ = [
        ("residual", ctypes.c_void_p),
        ("update", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("size", ctypes.c_int),
        ("eps", ctypes.c_float),
    ]


class _GateArguments(ctypes.Structure):
    _fields_ = [("gate_up", ctypes.c_void_p), ("out", ctypes.c_void_p), ("size", ctypes.c_int)]


class _SoftcapArguments(ctypes.Structure):
    _fields_ = [("logits", ctypes.c_void_p), ("size", ctypes.c_int), ("cap", ctypes.c_float)]


def add_rms_norm(
    machine: Machine, residual: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    rows, size = residual.shape
    out = machine.empty(rows, size, torch.bfloat16)
    machine.call(
        "add_rms_norm",
        _ResidualNormArguments,
        (rows, 0),
        residual=residual,
        update=update,
        weight=weight,
        out=out,
        size=size,
        eps=eps,
    )
    return out


def rms_norm(machine: Machine, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    rows, size = x.shape
    out = machine.empty(rows, size, torch.bfloat16)
    machine.call("rms_norm", _NormArguments, (rows, 0), x=x, weight=weight, out=out, size=size, eps=eps)
    return out


def gated(machine: Machine, gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = machine.empty(rows, size, torch.bfloat16)
    machine.call(f"gated_{activation}", _GateArguments, (rows, 0), gate_up=gate_up, out=out, size=size)
    return out


def softcap(machine: Machine, logits: torch.Tensor, cap: float) -> None:
    """logits [R, V] float32 = cap * tanh(logits / cap), in place."""
    rows, size = logits.shape
    machine.call("softcap_logits", _SoftcapArguments, (rows, 0), logits=logits, size=size, cap=cap)
