"""Gemma 2 and 3: norms before and after each part, scaled embeddings, and windows in most layers.

Gemma team 2024, arXiv:2408.00118, and 2025, arXiv:2503.19786. Norms are stored as their distance from 1. Gemma 2 bounds
its scores and logits; Gemma 3 norms the heads of Q and K instead, and rotates layers with a window by another base.
"""

import math
from collections.abc import Iterable

from engine.layers.decoder import Decoder, SandwichNormLayer
from engine.models.parts import Parts
from kernels.operations import HeadNorms, RotaryTables

_FROM = 1.0  # what norms are the distance from


def gemma2(parts: Parts) -> Decoder:
    rotary = parts.rotary(parts.config.rope)
    return _decoder(parts, (_layer(parts, index, rotary) for index in parts.layers))


def gemma3(parts: Parts) -> Decoder:
    config = parts.config
    far, near = parts.rotary(config.rope), parts.rotary(config.local_rope or config.rope)
    layers = (
        _layer(
            parts,
            index,
            rotary=far if config.window(index) is None else near,
            norms=parts.head_norms(index, plus=_FROM),
        )
        for index in parts.layers
    )
    return _decoder(parts, layers)


def _layer(parts: Parts, index: int, rotary: RotaryTables, norms: HeadNorms | None = None) -> SandwichNormLayer:
    prefix = f"model.layers.{index}"
    return SandwichNormLayer(
        parts.norm(f"{prefix}.input_layernorm", plus=_FROM),
        parts.attention(index, rotary, norms=norms),
        parts.norm(f"{prefix}.post_attention_layernorm", plus=_FROM),
        parts.norm(f"{prefix}.pre_feedforward_layernorm", plus=_FROM),
        parts.gated_mlp(index, "gelu_tanh"),
        parts.norm(f"{prefix}.post_feedforward_layernorm", plus=_FROM),
    )


def _decoder(parts: Parts, layers: Iterable[SandwichNormLayer]) -> Decoder:
    return parts.decoder(layers, norm_plus=_FROM, embedding_scale=math.sqrt(parts.config.hidden_size))
