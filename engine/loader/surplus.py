"""Tensors that a file has and its model did not ask for: a sign that config and weights are of two models."""

import re

from engine.errors import ModelLoadError
from engine.loader.checkpoint import Weights

_HARMLESS = re.compile(
    r".*rotary_emb\.inv_freq"  # what the config says as well: files of 2023
    r"|rope_(freqs|factors_long|factors_short)\.weight"  # GGUF's figures for the config, which has read them
    r"|.*\.[kv]_scale"  # for whoever stores the KV cache in fewer bits as that file's makers did
)


def expect_all_read(weights: Weights, *, tied: bool) -> None:
    """`tied`: by the config, the embedding is the head, and a head beside it a copy. Raises ModelLoadError."""
    surplus = [name for name in weights.unread() if not _HARMLESS.fullmatch(name)]
    if tied:
        surplus = [name for name in surplus if not name.startswith("lm_head.")]
    if surplus:
        others = f" (and {len(surplus) - 1} more)" if len(surplus) > 1 else ""
        raise ModelLoadError(
            f"tensor {surplus[0]}{others} has no place in the model that the config describes; "
            "the file is damaged or its config of another model: download it again"
        )
