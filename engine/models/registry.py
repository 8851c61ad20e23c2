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

    def forward(self, token_ids: torch.Tensor, batch: TokenBatch, cache: KVCache) -> torch.Tensor:
        """token_ids [T] int64 -> hidden states after the last norm, [T, hidden] in the operations' dtype."""
        ...

    def logits(self, x: torch.Tensor, num_generated: int) -> torch.Tensor:
        """Hidden states [R, hidden], the first num_generated of generated tokens -> [R, vocab] float32."""
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
