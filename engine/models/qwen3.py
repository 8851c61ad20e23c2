"""Qwen 3, dense and sparse: heads of Q and K are normed before they are rotated. Yang et al. 2025, arXiv:2505.09388."""

from engine.layers.decoder import Decoder, FeedForward
from engine.models.parts import Parts


def qwen3(parts: Parts) -> Decoder:
    rotary = parts.rotary(parts.config.rope)
    layers = (
        parts.pre_norm_layer(
            index, parts.attention(index, rotary, norms=parts.head_norms(index)), _feed_forward(parts, index)
        )
        for index in parts.layers
    )
    return parts.decoder(layers)


def _feed_forward(parts: Parts, index: int) -> FeedForward:
    experts = parts.config.experts
    if experts is None or index in experts.dense_layers:
        return parts.gated_mlp(index)
    return parts.experts(index, "mlp", gate="gate_proj", up="up_proj", down="down_proj")
