"""Model families by the architecture name that their files carry."""

from typing import Protocol

import torch

from engine.errors import ModelLoadError
from engine.loader.checkpoint import Weights
from engine.models.config import ModelConfig
from engine.models.llama import LlamaModel
from kernels.batch import TokenBatch
from kernels.operations import HeadShape, KVCache, Operations


class Model(Protocol):
    heads: HeadShape
    num_parameters: int

    def forward(
        self, token_ids: torch.Tensor, sampled_rows: torch.Tensor, batch: TokenBatch, cache: KVCache
    ) -> torch.Tensor:
        """token_ids [T] int64, sampled_rows [R] int64 -> logits [R, vocab] float32."""
        ...


class Family(Protocol):
    def __call__(self, config: ModelConfig, weights: Weights, operations: Operations, context_length: int) -> Model: ...


FAMILIES: dict[str, Family] = {"llama": LlamaModel}


def build_model(config: ModelConfig, weights: Weights, operations: Operations, context_length: int) -> Model:
    """Raises ModelLoadError for a family that is not here."""
    family = FAMILIES.get(config.architecture)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise ModelLoadError(f"no model family {config.architecture!r} (there is: {known}); choose another model")
    return family(config, weights, operations, context_length)
