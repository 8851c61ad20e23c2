"""`Operations` on a CPU: bfloat16 activations, a float32 residual stream, and the C++ kernels of this folder."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from kernels.batch import TokenBatch
from kernels.cpu import attention, embedding, pointwise, products
from kernels.cpu.build import Level, load_library
from kernels.cpu.program import Machine
from kernels.cpu.sampling import CpuSampling
from kernels.matrix import GROUP_SIZE, Matrix
from kernels.operations import (
    Activation,
    AttentionRule,
    CacheDtype,
    ExpertRule,
    HeadNorms,
    HeadShape,
    KVCache,
    ModelShape,
    PackedWeight,
    RotaryTables,
)


class CpuOperations:
    """Implements `Operations` for one instruction set. Raises KernelUnavailableError.

    bf16_copy: of quantised weights, for prompts' rows: twice the memory and more, and several times the speed.
    """

    device = torch.device("cpu")
    dtype = torch.bfloat16

    def __init__(self, level: Level, *, bf16_copy: bool = True) -> None:
        self.name = level.name
        self._bf16_copy = bf16_copy
        library = load_library(level)
        self.library = Path(library._name)
        self._machine = Machine(library)
        self.sampling = CpuSampling(self._machine)

    def supports(self, shape: ModelShape) -> bool:
        sizes = (shape.hidden_size, shape.intermediate_size, shape.expert_size or 0)
        return all(size % GROUP_SIZE == 0 for size in sizes) and attention.supports(shape.heads)

    def compile(self, function: Callable[..., torch.Tensor], *, max_rows: int) -> Callable[..., torch.Tensor]:
        return self._machine.record(function, max_rows)

    def packing(self) -> AbstractContextManager[None]:
        return self._machine.in_background()

    def pack(self, parts: Sequence[Matrix], bias: torch.Tensor | None = None) -> PackedWeight:
        return products.pack(self._machine, parts, bias, bf16_copy=self._bf16_copy)

    def pack_table(self, matrix: Matrix) -> PackedWeight:
        return products.pack(self._machine, [matrix], bf16_copy=False)

    def embed(self, token_ids: torch.Tensor, table: PackedWeight, scale: float = 1.0) -> torch.Tensor:
        return embedding.embed(self._machine, token_ids, table, scale)

    def linear(self, x: torch.Tensor, weight: PackedWeight, batch: TokenBatch) -> torch.Tensor:
        return products.linear(self._machine, x, weight, batch)

    def logits(
        self, x: torch.Tensor, weight: PackedWeight, num_generated: int, softcap: float | None = None
    ) -> torch.Tensor:
        out = products.logits(self._machine, x, weight, num_generated)
        if softcap is not None:
            pointwise.softcap(self._machine, out, softcap)
        return out

    def add_rms_norm(
        self, residual: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        return pointwise.add_rms_norm(self._machine, residual, update, weight, eps)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return pointwise.rms_norm(self._machine, x, weight, eps)

    def gated(self, gate_up: torch.Tensor, activation: Activation = "silu") -> torch.Tensor:
        return pointwise.gated(self._machine, gate_up, activation)

    def pack_experts(self, gate_up: Iterable[tuple[Matrix, Matrix]], down: Iterable[Matrix]) -> PackedWeight:
        return products.pack_experts(self._machine, gate_up, down, bf16_copy=self._bf16_copy)

    def experts(
        self, x: torch.Tensor, scores: torch.Tensor, weight: PackedWeight, rule: ExpertRule, batch: TokenBatch
    ) -> torch.Tensor:
        return products.experts(self._machine, x, scores, weight, rule, batch)

    def block_bytes(self, num_layers: int, heads: HeadShape, dtype: CacheDtype) -> int:
        return attention.block_bytes(num_layers, heads, dtype)

    def new_cache(self, num_layers: int, num_blocks: int, heads: HeadShape, dtype: CacheDtype = "auto") -> KVCache:
        return attention.new_cache(num_layers, num_blocks, heads, dtype)

    def rope_and_store(
        self,
        qkv: torch.Tensor,
        rotary: RotaryTables,
        batch: TokenBatch,
        cache: KVCache,
        layer: int,
        heads: HeadShape,
        norms: HeadNorms | None = None,
    ) -> None:
        attention.rope_and_store(self._machine, qkv, rotary, batch, cache, layer, heads, norms)

    def paged_attention(
        self,
        qkv: torch.Tensor,
        batch: TokenBatch,
        cache: KVCache,
        layer: int,
        heads: HeadShape,
        rule: AttentionRule,
    ) -> torch.Tensor:
        return attention.paged_attention(self._machine, qkv, batch, cache, layer, heads, rule)
