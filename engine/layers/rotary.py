"""Tables of the rotary position embedding, with the stretches that model files ask for. Knows no heads."""

import math

import torch

from engine.models.config import RopeScaling


def rotary_tables(
    head_dim: int,
    theta: float,
    num_positions: int,
    scaling: RopeScaling | None = None,
    factors: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, [num_positions, head_dim / 2] float32. Su et al. 2021, arXiv:2104.09864.

    `factors` [head_dim / 2] divides each frequency (GGUF's rope_freqs tensor).
    """
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scaling is not None:
        frequencies = _scaled(frequencies, scaling)
    if factors is not None:
        frequencies = frequencies / factors.double()
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float64), frequencies)
    return angles.cos().float(), angles.sin().float()


def _scaled(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    # Llama 3.1: waves longer than the trained context are stretched, short ones kept, those between blended.
    turns = scaling.original_context_length * frequencies / (2 * math.pi)
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = blend.clamp(0, 1)
    return frequencies * (blend + (1 - blend) / scaling.factor)
