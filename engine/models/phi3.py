"""Phi 3 and 4-mini: Llama's form; the file holds Q, K and V as one matrix, and gate and up as one. arXiv:2404.14219.

A context longer than the trained one is stretched by LongRoPE, and heads may be rotated in part.
"""

from engine.layers.decoder import Decoder
from engine.models.parts import Parts


def phi3(parts: Parts) -> Decoder:
    rotary = parts.rotary(parts.config.rope, partial=True)
    layers = (
        parts.pre_norm_layer(index, parts.attention(index, rotary, fused=True), parts.gated_mlp(index, fused=True))
        for index in parts.layers
    )
    return parts.decoder(layers)
