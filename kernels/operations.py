"""The operations a decoder-only transformer needs, as one interface with an implementation for each kind of machine.

A model calls them in its `forward`; how that is carried out is the implementation's business (`compile`): one by one,
or recorded once and replayed as a whole. So a forward may touch activations through operations only, and never look at
their values.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from kernels.batch import TokenBatch
from kernels.matrix import Matrix
from kernels.sampling import SamplingOperations

Activation = Literal["silu", "gelu_tanh"]
CacheDtype = Literal["auto", "int8", "fp8"]


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
class ModelShape:
    """What an implementation must know of a model to say whether it can run it."""

    heads: HeadShape
    hidden_size: int
    intermediate_size: int
    num_layers: int
    expert_size: int | None = None  # intermediate_size of one expert, where there are some


@dataclass(slots=True, frozen=True)
class KVCache:
    """Tensors [num_blocks, ...], one or more a layer, in an order of the implementation's own.

    Copying `[block]` of each tensor copies all that a block holds.
    """

    dtype: CacheDtype
    layers: list[tuple[torch.Tensor, ...]]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [tensor for layer in self.layers for tensor in layer]


@dataclass(slots=True, frozen=True)
class RotaryTables:
    """cos, sin [context, rotary_dim / 2] float32. Su et al. 2021, arXiv:2104.09864.

    The halves of a head's first rotary_dim are rotated against each other (GPT-NeoX's order).
    """

    cos: torch.Tensor
    sin: torch.Tensor


@dataclass(slots=True, frozen=True)
class HeadNorms:
    """RMS norms over each head of Q and of K, before they are rotated (Qwen3, Gemma 3). Weights [head_dim] float32."""

    query: torch.Tensor
    key: torch.Tensor
    eps: float


@dataclass(slots=True, frozen=True)
class AttentionRule:
    """How scores become weights.

    `scale` multiplies scores; `softcap` bounds them, cap * tanh(score / cap) (Gemma 2); a query sees `window` tokens,
    itself included (Mistral's sliding window).
    """

    scale: float
    softcap: float | None = None
    window: int | None = None


@dataclass(slots=True, frozen=True)
class ExpertRule:
    """top_k experts a token, their weights a softmax over all experts' scores, summing to 1 if `normalise`."""

    top_k: int
    normalise: bool
    activation: Activation


class Operations(Protocol):
    """T rows, C hidden size, `dtype` of activations. On a CPU no row's result depends on the other rows.

    The residual stream is float32 throughout. Inputs are contiguous; rows are never empty. A row's arithmetic may
    depend on its role, prompt or generated (`TokenBatch.num_generated`), and on nothing else.
    """

    name: str
    device: torch.device
    dtype: torch.dtype

    @property
    def sampling(self) -> SamplingOperations:
        """What chooses tokens from `logits`' result."""
        ...

    def supports(self, shape: ModelShape) -> bool: ...

    def compile(self, function: Callable[..., torch.Tensor], *, max_rows: int) -> Callable[..., torch.Tensor]:
        """`function`, to be called many times with its tensors in the same places and up to max_rows rows.

        Arguments are a tensor with one row a token, then what stays the same or describes the step (TokenBatch,
        KVCache).
        """
        ...

    def packing(self) -> AbstractContextManager[None]:
        """What is packed inside is of use after its end only: until then it may be under way, beside other work."""
        ...

    def pack(self, parts: Sequence[Matrix], bias: torch.Tensor | None = None) -> PackedWeight:
        """[N_i, K] each, stacked -> packed for `linear`; bias [sum of N_i]."""
        ...

    def pack_table(self, matrix: Matrix) -> PackedWeight:
        """[vocab, C] -> packed for `embed` and for `logits`: a tied model has one for both."""
        ...

    def embed(self, token_ids: torch.Tensor, table: PackedWeight, scale: float = 1.0) -> torch.Tensor:
        """token_ids [T] int64 -> scale * rows of the table, [T, C] float32: the residual stream."""
        ...

    def linear(self, x: torch.Tensor, weight: PackedWeight, batch: TokenBatch) -> torch.Tensor:
        """x [T, K] in dtype -> x @ weight.T + bias, [T, N] in dtype."""
        ...

    def logits(
        self, x: torch.Tensor, weight: PackedWeight, num_generated: int, softcap: float | None = None
    ) -> torch.Tensor:
        """x [R, K] in dtype, the first num_generated rows of generated tokens -> [R, N] float32 within `softcap`."""
        ...

    def add_rms_norm(
        self, residual: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """residual [T, C] float32 += update [T, C], in place; returns RMSNorm(residual) * weight in dtype.

        weight [C] float32. Zhang and Sennrich 2019, arXiv:1910.07467.
        """
        ...

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x [T, C] in dtype -> RMSNorm(x) * weight in dtype (the norms after attention and MLP of Gemma 2 and 3)."""
        ...

    def gated(self, gate_up: torch.Tensor, activation: Activation = "silu") -> torch.Tensor:
        """gate_up [T, 2I] -> activation(gate) * up, [T, I]. Shazeer 2020, arXiv:2002.05202."""
        ...

    def pack_experts(self, gate_up: Iterable[tuple[Matrix, Matrix]], down: Iterable[Matrix]) -> PackedWeight:
        """Of each expert: gate [I, C] and up [I, C], down [C, I]. None is asked for before the one before is packed."""
        ...

    def experts(
        self, x: torch.Tensor, scores: torch.Tensor, weight: PackedWeight, rule: ExpertRule, batch: TokenBatch
    ) -> torch.Tensor:
        """Mixture of experts: x [T, C], scores [T, E] in dtype (a `linear`'s) -> [T, C] in dtype.

        Shazeer et al. 2017, arXiv:1701.06538; Jiang et al. 2024, arXiv:2401.04088.
        """
        ...

    def block_bytes(self, num_layers: int, heads: HeadShape, dtype: CacheDtype) -> int:
        """Memory of one block of the cache, all layers together."""
        ...

    def new_cache(self, num_layers: int, num_blocks: int, heads: HeadShape, dtype: CacheDtype = "auto") -> KVCache:
        """Room for the keys and values of num_blocks * BLOCK_SIZE tokens."""
        ...

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
        """Norm (if asked) and rotate queries and keys of qkv [T, qkv_size], in place; store keys and values."""
        ...

    def paged_attention(
        self,
        qkv: torch.Tensor,
        batch: TokenBatch,
        cache: KVCache,
        layer: int,
        heads: HeadShape,
        rule: AttentionRule,
    ) -> torch.Tensor:
        """Causal grouped-query attention of each row over its sequence's cached keys, [T, num_heads * head_dim].

        Softmax in float32. Paging: Kwon et al. 2023, arXiv:2309.06180.
        """
        ...
