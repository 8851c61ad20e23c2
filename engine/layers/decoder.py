"""A decoder-only transformer: embedding, layers, last norm and head. Knows no model family.

What a layer adds to the residual stream is added by the norm that comes next, in one pass: an `update` [T, hidden] is
under way from one to the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.layers.attention import Attention
from engine.layers.norm import RMSNorm
from kernels.batch import TokenBatch
from kernels.operations import HeadShape, KVCache, Operations, PackedWeight


class FeedForward(Protocol):
    def __call__(self, x: torch.Tensor, batch: TokenBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        ...


class Layer(Protocol):
    def __call__(
        self, residual: torch.Tensor, update: torch.Tensor | None, batch: TokenBatch, cache: KVCache
    ) -> torch.Tensor:
        """residual [T, hidden] float32 takes in `update` and what the layer adds, but for the last part: the result."""
        ...


@dataclass(frozen=True, slots=True)
class PreNormLayer:
    """x + attention(norm(x)), then x + feed_forward(norm(x)): Llama, and most others after it."""

    attention_norm: RMSNorm
    attention: Attention
    feed_forward_norm: RMSNorm
    feed_forward: FeedForward

    def __call__(
        self, residual: torch.Tensor, update: torch.Tensor | None, batch: TokenBatch, cache: KVCache
    ) -> torch.Tensor:
        attended = self.attention(self.attention_norm.add(residual, update), batch, cache)
        return self.feed_forward(self.feed_forward_norm.add(residual, attended), batch)


@dataclass(frozen=True, slots=True)
class SandwichNormLayer:
    """x + norm(attention(norm(x))), then x + norm(feed_forward(norm(x))): Gemma 2 and 3."""

    attention_norm: RMSNorm
    attention: Attention
    attended_norm: RMSNorm
    feed_forward_norm: RMSNorm
    feed_forward: FeedForward
    fed_norm: RMSNorm

    def __call__(
        self, residual: torch.Tensor, update: torch.Tensor | None, batch: TokenBatch, cache: KVCache
    ) -> torch.Tensor:
        attended = self.attended_norm(self.attention(self.attention_norm.add(residual, update), batch, cache))
        return self.fed_norm(self.feed_forward(self.feed_forward_norm.add(residual, attended), batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """`embedding` [vocab, hidden], its rows scaled by embedding_scale; `head` [vocab, hidden], its logits bounded by

    logit_softcap, if any.
    """

    operations: Operations
    heads: HeadShape
    embedding: PackedWeight
    layers: Sequence[Layer]
    norm: RMSNorm
    head: PackedWeight
    num_parameters: int
    embedding_scale: float = 1.0
    logit_softcap: float | None = None

    def forward(self, token_ids: torch.Tensor, batch: TokenBatch, cache: KVCache) -> torch.Tensor:
        """token_ids [T] int64 -> [T, hidden] in the operations' dtype, after the last norm."""
        residual = self.operations.embed(token_ids, self.embedding, self.embedding_scale)  # [T, hidden] float32
        update = None
        for layer in self.layers:
            update = layer(residual, update, batch, cache)
        return self.norm.add(residual, update)

    def logits(self, x: torch.Tensor, num_generated: int) -> torch.Tensor:
        """Rows of `forward`'s result [R, hidden], those of generated tokens first -> [R, vocab] float32."""
        return self.operations.logits(x, self.head, num_generated, self.logit_softcap)
