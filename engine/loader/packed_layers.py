"""Which packed format a folder's linear layers have: `quantization_config` of config.json, or quantize_config.json.

Reads a layer's packed tensors and hands back its matrix. What isn't GPTQ or AWQ is refused by its name.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from engine.errors import ModelLoadError
from engine.loader.checkpoint import expect_finite, expect_shape
from engine.loader.packed_codes import awq_matrix, gptq_matrix
from engine.loader.shards import REMEDY, Shards
from kernels.matrix import GROUP_SIZE, Matrix

OTHER_FILES = "use the model's BF16, GPTQ, AWQ (4 bits) or GGUF files"


@dataclass(frozen=True, slots=True)
class PackedFormat:
    method: Literal["gptq", "awq"]
    bits: int
    group_size: int  # -1: all inputs of an output are one group
    zero_offset: int = 0  # of GPTQ: what was taken from zeros before they were stored

    def matrix(self, shards: Shards, layer: str, shape: tuple[int, int]) -> Matrix:
        """[N, K] of `layer`, a name without ".weight". Raises ModelLoadError."""
        outputs, inputs = shape
        group = inputs if self.group_size == -1 else self.group_size
        per_int = 32 // self.bits
        if inputs % group or group % GROUP_SIZE or outputs % per_int:
            raise ModelLoadError(
                f"tensor {layer}.qweight: {inputs} inputs and {outputs} outputs in groups of {group} can't be read; "
                f"groups must be multiples of {GROUP_SIZE}: {OTHER_FILES}"
            )
        groups = inputs // group
        qzeros = _integers(shards, f"{layer}.qzeros", (groups, outputs // per_int))
        scales = _scales(shards, f"{layer}.scales", (groups, outputs))
        if self.method == "awq":
            return awq_matrix(_integers(shards, f"{layer}.qweight", (inputs, outputs // per_int)), qzeros, scales)
        qweight = _integers(shards, f"{layer}.qweight", (inputs // per_int, outputs))
        g_idx = torch.arange(inputs, dtype=torch.int32) // group
        if f"{layer}.g_idx" in shards:
            g_idx = _integers(shards, f"{layer}.g_idx", (inputs,))
        if int(g_idx.min()) < 0 or int(g_idx.max()) >= groups:
            raise ModelLoadError(f"tensor {layer}.g_idx names groups beyond the {groups} there are; {REMEDY}")
        return gptq_matrix(qweight, qzeros, scales, g_idx, self.bits, self.zero_offset)


def packed_format(config: dict[str, Any]) -> PackedFormat:
    """Of a `quantization_config` (or quantize_config.json). Raises ModelLoadError."""
    method = config.get("quant_method", "gptq")
    bits = config.get("bits") or config.get("w_bit") or 0
    group_size = config.get("group_size", config.get("q_group_size", 128))
    if method not in ("gptq", "awq") or bits not in ((4, 8) if method == "gptq" else (4,)):
        raise ModelLoadError(
            f"the weights are quantised by {method!r} ({bits} bits), which can't be read; {OTHER_FILES}"
        )
    if not isinstance(group_size, int) or (group_size != -1 and group_size <= 0):
        raise ModelLoadError(f"quantization_config: group_size is {group_size!r}; {REMEDY}")
    stored = config.get("checkpoint_format", "gptq") if method == "gptq" else str(config.get("version", "gemm")).lower()
    if stored not in ("gptq", "gptq_v2", "gemm"):
        raise ModelLoadError(f"the weights are packed as {method} {stored!r}, which can't be read; {OTHER_FILES}")
    return PackedFormat(method, bits, group_size, zero_offset=1 if stored == "gptq" else 0)


def _integers(shards: Shards, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    return _expect(shards.tensor(name), name, shape, (torch.int32,))


def _scales(shards: Shards, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    scales = _expect(shards.tensor(name), name, shape, (torch.float16, torch.bfloat16, torch.float32))
    return expect_finite(name, scales if scales.dtype == torch.float16 else scales.float())


def _expect(tensor: torch.Tensor, name: str, shape: tuple[int, ...], types: tuple[torch.dtype, ...]) -> torch.Tensor:
    expect_shape(name, tuple(tensor.shape), shape)
    if tensor.dtype not in types:
        raise ModelLoadError(f"tensor {name} is {tensor.dtype}, not {types[0]}; {REMEDY}")
    return tensor
