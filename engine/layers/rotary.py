"""Tables of the rotary position embedding, with the stretches that model files ask for. Knows no heads."""

import math

import torch

from engine.models.rope import DivisorScaling, LinearScaling, Llama3Scaling, LongRopeScaling, Rope, YarnScaling
from kernels.operations import RotaryTables


def rotary_tables(rope: Rope, num_positions: int, device: torch.device) -> RotaryTables:
    """For positions up to num_positions. Su et al. 2021, arXiv:2104.09864."""
    frequencies = rope.theta ** (-torch.arange(0, rope.dim, 2, dtype=torch.float64) / rope.dim)  # [dim / 2]
    magnitude = 1.0
    match rope.scaling:
        case LinearScaling(factor):
            frequencies = frequencies / factor
        case DivisorScaling(divisors):
            frequencies = frequencies / torch.tensor(divisors, dtype=torch.float64)
        case Llama3Scaling() as scaling:
            frequencies = _llama3(frequencies, scaling)
        case YarnScaling() as scaling:
            frequencies, magnitude = _yarn(frequencies, rope, scaling), scaling.attention_factor
        case LongRopeScaling() as scaling:
            # One set for a whole sequence: its keys are in the cache, rotated, before it is known how long it gets.
            beyond = num_positions > scaling.original_context_length
            divisors = scaling.long_factors if beyond else scaling.short_factors
            frequencies = frequencies / torch.tensor(divisors, dtype=torch.float64)
            magnitude = scaling.attention_factor
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float64), frequencies)
    cos, sin = ((magnitude * table).float().to(device) for table in (angles.cos(), angles.sin()))
    return RotaryTables(cos, sin)


def _llama3(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    """Waves longer than the trained context are stretched, short ones kept, those between blended."""
    turns = scaling.original_context_length * frequencies / (2 * math.pi)
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = blend.clamp(0, 1)
    return frequencies * (blend + (1 - blend) / scaling.factor)


def _yarn(frequencies: torch.Tensor, rope: Rope, scaling: YarnScaling) -> torch.Tensor:
    def pair_with(turns: float) -> float:
        """The (fractional) index of the pair that turns so many times in the trained context."""
        return rope.dim * math.log(scaling.original_context_length / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair_with(scaling.beta_fast), pair_with(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    width = high - low if high != low else 0.001  # as the paper's own code does: a step instead of a ramp
    stretched = ((torch.arange(rope.dim // 2, dtype=torch.float64) - low) / width).clamp(0, 1)
    return frequencies * (1 - stretched + stretched / scaling.factor)
