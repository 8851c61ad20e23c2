"""Llama 2 and 3, SmolLM, and what else has their form: Touvron et al. 2023, arXiv:2307.09288."""

from engine.layers.decoder import Decoder
from engine.models.parts import Parts


def llama(parts: Parts) -> Decoder:
    rotary = parts.rotary(parts.config.rope)
    layers = (
        parts.pre_norm_layer(index, parts.attention(index, rotary), parts.gated_mlp(index)) for index in parts.layers
    )
    return parts.decoder(layers)
