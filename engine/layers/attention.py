"""Grouped-query attention over a paged cache: one product for Q, K and V, one for the output. Knows no model family."""

import torch

from kernels.batch import TokenBatch
from kernels.operations import AttentionRule, HeadNorms, HeadShape, KVCache, Operations, PackedWeight, RotaryTables


class Attention:
    """`qkv` packs the rows of Q, K and V one after another, [qkv_size, hidden]; `output` [hidden, heads * head_dim]."""

    def __init__(
        self,
        operations: Operations,
        layer: int,
        heads: HeadShape,
        qkv: PackedWeight,
        output: PackedWeight,
        rotary: RotaryTables,
        rule: AttentionRule,
        norms: HeadNorms | None = None,
    ) -> None:
        self._operations = operations
        self._layer = layer
        self._heads = heads
        self._qkv = qkv
        self._output = output
        self._rotary = rotary
        self._rule = rule
        self._norms = norms

    def __call__(self, x: torch.Tensor, batch: TokenBatch, cache: KVCache) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; the keys and values of these rows are in the cache afterwards."""
        operations, layer, heads = self._operations, self._layer, self._heads
        qkv = operations.linear(x, self._qkv, batch)  # [T, (H + 2 KV) * D]
        operations.rope_and_store(qkv, self._rotary, batch, cache, layer, heads, self._norms)
        attended = operations.paged_attention(qkv, batch, cache, layer, heads, self._rule)  # [T, H * D]
        return operations.linear(attended, self._output, batch)
