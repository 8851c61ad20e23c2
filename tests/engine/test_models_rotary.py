"""Rotary tables against transformers' frequencies, for every kind of scaling that files ask for."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.layers.rotary import rotary_tables
from engine.loader.folder_config import read_config
from engine.models.rope import DivisorScaling, Llama3Scaling, Rope

CPU = torch.device("cpu")
FIGURES = {
    "vocab_size": 8, "hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 8,
    "max_position_embeddings": 4096,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LONG = {"short_factor": [1.0 + i / 16 for i in range(32)], "long_factor": [1.0 + i for i in range(32)]}
LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": 1024, **LONG}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}  # fmt: skip


def turn(rope: Rope, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """By how much a position turns each pair, and by what it multiplies it, [dim / 2] each."""
    tables = rotary_tables(rope, num_positions, CPU)
    return torch.atan2(tables.sin[1], tables.cos[1]), torch.hypot(tables.sin[1], tables.cos[1])


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 3.0},
        LLAMA3,
        YARN,
        YARN | {"beta_fast": 20.0, "beta_slow": 2.0, "attention_factor": 0.7},
        YARN | {"mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False},
        LONGROPE,
        LONGROPE | {"attention_factor": 1.5},
        LONGROPE | {"factor": 16.0},
    ],
)
def test_scaled_frequencies_are_transformers(scaling: dict[str, Any]) -> None:
    theirs = transformers.LlamaConfig(**FIGURES, rope_scaling=dict(scaling), rope_theta=50000.0)
    frequencies, magnitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](theirs, seq_len=4096)
    found, factors = turn(read_config(theirs.to_dict(), Path("model")).rope, 4096)
    torch.testing.assert_close(found, frequencies, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(factors, torch.full_like(factors, magnitude))


def test_longrope_takes_the_short_factors_while_all_positions_are_trained_ones() -> None:
    theirs = transformers.LlamaConfig(**FIGURES, rope_scaling=dict(LONGROPE))
    rope = read_config(theirs.to_dict(), Path("model")).rope
    frequencies, _ = ROPE_INIT_FUNCTIONS["longrope"](theirs, seq_len=1024)
    torch.testing.assert_close(turn(rope, 1024)[0], frequencies, rtol=1e-5, atol=1e-8)
    assert not torch.allclose(turn(rope, 1025)[0], frequencies, rtol=1e-2)


def test_divisors_are_what_llama3_scaling_comes_to() -> None:
    """As GGUF's rope_freqs tensor holds it."""
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_length=1024)
    plain, scaled = (turn(Rope(10000.0, 64, each), 16)[0] for each in (None, scaling))
    divided = turn(Rope(10000.0, 64, DivisorScaling(tuple((plain / scaled).tolist()))), 16)[0]
    torch.testing.assert_close(divided, scaled, rtol=1e-6, atol=0)


def test_positions_far_away_are_exact() -> None:
    """float32 angles would be off by 0.01 there, and so would every logit of a long context."""
    tables = rotary_tables(Rope(10000.0, 64), 131072, CPU)
    angle = torch.tensor(131071.0, dtype=torch.float64) * 10000.0 ** (-2 / 64)
    assert abs(float(tables.cos[-1, 1]) - float(angle.cos())) < 1e-7
