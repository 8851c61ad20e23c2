"""The operations a decoder-only transformer needs, as one interface with an implementation for each kind of machine."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernels.batch import TokenBatch


@dataclass(slots=True, frozen=True)
class PackedWeight:
    """A [num_outputs, num_inputs] matrix in the order one implementation wants it."""

    data: Any
    num_outputs: int
    num_inputs: int


@dataclass(slots=True, frozen=True)
class HeadShape:
    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def qkv_size(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


@dataclass(slots=True, frozen=True)
class KVCache:
    """One tensor a layer for keys and for values, [num_blocks, num_kv_heads, BLOCK_SIZE * head_dim].

    The order inside a block is the implementation's own.
    """

    keys: list[torch.Tensor]
    values: list[torch.Tensor]


class Operations(Protocol):
    """T rows, C hidden size, `dtype` of activations. On a CPU no row's result depends on the other rows.

    The residual stream is float32 throughout. Inputs are contiguous; rows are never empty.
    """

    name: str
    device: torch.device
    dtype: torch.dtype

    def supports(self, heads: HeadShape, hidden_size: int, intermediate_size: int) -> bool:
        """Whether shapes fit this implementation."""
        ...

    def pack(self, weight: torch.Tensor) -> PackedWeight:
        """[N, K] of any float type -> packed for `linear`."""
        ...

    def linear(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        """x [T, K] in dtype -> x @ weight.T, [T, N] in dtype."""
        ...

    def logits(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        """As `linear`, but float32 out: the differences between logits matter more than their size."""
        ...

    def add_rms_norm(
        self, residual: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """residual [T, C] float32 += update [T, C], in place; returns RMSNorm(residual) * weight in dtype.

        weight [C] float32. Zhang and Sennrich 2019, arXiv:1910.07467.
        """
        ...

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [T, 2I] -> silu(gate) * up, [T, I]. SwiGLU, Shazeer 2020, arXiv:2002.05202."""
        ...

    def new_cache(self, num_layers: int, num_blocks: int, heads: HeadShape) -> KVCache:
        """Room for the keys and values of num_blocks * BLOCK_SIZE tokens."""
        ...

    def rope_and_store(
        self,
        qkv: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        batch: TokenBatch,
        cache: KVCache,
        layer: int,
        heads: HeadShape,
    ) -> None:
        """Rotate the queries of qkv [T, qkv_size] in place; rotate keys and put them and the values into the cache.

        cos, sin [context, head_dim / 2] float32; halves are rotated against each other (GPT-NeoX's order).
        Su et al. 2021, arXiv:2104.09864.
        """
        ...

    def paged_attention(
        self, qkv: torch.Tensor, batch: TokenBatch, cache: KVCache, layer: int, heads: HeadShape
    ) -> torch.Tensor:
        """Causal grouped-query attention of each row over its sequence's cached keys, [T, num_heads * head_dim].

        Softmax in float32, scale head_dim ** -0.5. Paging: Kwon et al. 2023, arXiv:2309.06180.
        """
        ...
