"""Mistral and Mixtral: Llama's form, over a sliding window where the config has one, or with a mixture of experts.

Jiang et al. 2023, arXiv:2310.06825; Jiang et al. 2024, arXiv:2401.04088.
"""

from engine.layers.decoder import Decoder
from engine.models.llama import llama
from engine.models.parts import Parts


def mistral(parts: Parts) -> Decoder:
    return llama(parts)  # the windows are in the config, and any family may have them


def mixtral(parts: Parts) -> Decoder:
    rotary = parts.rotary(parts.config.rope)
    layers = (
        parts.pre_norm_layer(
            index,
            parts.attention(index, rotary),
            parts.experts(index, "block_sparse_moe", gate="w1", up="w3", down="w2"),
        )
        for index in parts.layers
    )
    return parts.decoder(layers)
