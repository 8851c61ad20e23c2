"""Qwen 2 and 2.5: Llama's form with biases on Q, K and V. Yang et al. 2024, arXiv:2407.10671 and 2412.15115."""

from engine.layers.decoder import Decoder
from engine.models.parts import Parts


def qwen2(parts: Parts) -> Decoder:
    rotary = parts.rotary(parts.config.rope)
    layers = (
        parts.pre_norm_layer(index, parts.attention(index, rotary, bias=True), parts.gated_mlp(index))
        for index in parts.layers
    )
    return parts.decoder(layers)
