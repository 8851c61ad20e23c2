"""Model families by the architecture name that their files carry."""

from collections.abc import Callable

from engine.errors import ModelLoadError
from engine.layers.decoder import Decoder
from engine.loader.checkpoint import Weights
from engine.loader.surplus import expect_all_read
from engine.models.config import ModelConfig
from engine.models.gemma import gemma2, gemma3
from engine.models.llama import llama
from engine.models.mistral import mistral, mixtral
from engine.models.parts import Parts
from engine.models.phi3 import phi3
from engine.models.qwen2 import qwen2
from engine.models.qwen3 import qwen3
from kernels.operations import Operations

FAMILIES: dict[str, Callable[[Parts], Decoder]] = {
    "gemma2": gemma2,
    "gemma3": gemma3,
    "llama": llama,
    "mistral": mistral,
    "mixtral": mixtral,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen3_moe": qwen3,
}


def family_of(config: ModelConfig) -> Callable[[Parts], Decoder]:
    """Raises ModelLoadError for one that is not here."""
    family = FAMILIES.get(config.architecture)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise ModelLoadError(f"no model family {config.architecture!r} (there is: {known}); choose another model")
    return family


def build_model(config: ModelConfig, weights: Weights, operations: Operations, num_positions: int) -> Decoder:
    """A model with rotary tables for so many positions, of all the file's weights.

    Raises ModelLoadError, for a family that is not here as for what is missing and what is left over.
    """
    model = family_of(config)(Parts(config, weights, operations, num_positions))
    expect_all_read(weights, tied=bool(config.tied))
    return model
