"""Grouped-query attention over a paged cache: one product for Q, K and V, one for the output. Knows no model family."""

import torch

from kernels.batch import TokenBatch
from kernels.operations import HeadShape, KVCache, Operations


class Attention:
    """`qkv` [qkv_size, hidden] holds the rows of Q, K and V one after another; `output` [hidden, heads * head_dim]."""

    def __init__(
        self, operations: Operations, layer: int, heads: HeadShape, qkv: torch.Tensor, output: torch.Tensor
    ) -> None:
        self._operations = operations
        self._layer = layer
        self._heads = heads
        self._qkv = operations.pack(qkv)
        self._output = operations.pack(output)

    def __call__(
        self, x: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor], batch: TokenBatch, cache: KVCache
    ) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; the keys and values of these rows are in the cache afterwards."""
        operations, heads = self._operations, self._heads
        qkv = operations.linear(x, self._qkv)  # [T, (H + 2 KV) * D]
        operations.rope_and_store(qkv, *rotary, batch, cache, self._layer, heads)
        return operations.linear(operations.paged_attention(qkv, batch, cache, self._layer, heads), self._output)
