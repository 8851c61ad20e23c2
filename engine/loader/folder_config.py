"""config.json in Hugging Face's layout -> ModelConfig: the keys of transformers 4 and 5, and what it takes for granted.

Knows no tensors. What the families here would leave out is refused by its key.
"""

import math
from pathlib import Path
from typing import Any

from engine.errors import ModelLoadError
from engine.loader.checkpoint import refusing_damage
from engine.models.config import ExpertsConfig, ModelConfig, expect_layers, layer_windows, stretched_length
from engine.models.rope import LinearScaling, Llama3Scaling, LongRopeScaling, Rope, RopeScaling, YarnScaling

# What transformers assumes for keys that a family's config.json lacks, where it isn't what it assumes elsewhere.
_GEMMA = {
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 4096,
}
_ASSUMED: dict[str, dict[str, Any]] = {
    "gemma2": _GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window_pattern": 2},
    "gemma3_text": _GEMMA
    | {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6, "max_position_embeddings": 131072},
    "mistral": {"sliding_window": 4096},
    "mixtral": {"rope_theta": 1e6, "norm_topk_prob": True},
    "qwen2": {"use_sliding_window": False, "max_window_layers": 28},
    "qwen3": {"use_sliding_window": False, "max_window_layers": 28, "head_dim": 128},
    "qwen3_moe": {"use_sliding_window": False},
}
_NAMES = {"gemma3_text": "gemma3"}
_UNSUPPORTED = ("text_config", "use_bidirectional_attention", "clip_qkv", "alibi", "no_rope_layers")


def read_config(raw: dict[str, Any], folder: Path) -> ModelConfig:
    """`raw` is the content of config.json. Raises ModelLoadError."""
    with refusing_damage(folder / "config.json"):
        architecture = str(raw["model_type"])
        for key in _UNSUPPORTED:
            if raw.get(key):
                raise ModelLoadError(f"{folder}/config.json: {key} is not supported; choose another model")
        raw = _ASSUMED.get(architecture, {}) | raw
        head_dim = int(raw.get("head_dim") or raw["hidden_size"] // max(raw["num_attention_heads"], 1))
        everywhere, nearby = _rope_parameters(raw)
        rope = _rope(raw, everywhere, head_dim, folder)
        num_layers = expect_layers(int(raw["num_hidden_layers"]))
        return ModelConfig(
            architecture=_NAMES.get(architecture, architecture),
            hidden_size=int(raw["hidden_size"]),
            num_layers=num_layers,
            num_heads=int(raw["num_attention_heads"]),
            num_kv_heads=int(raw.get("num_key_value_heads") or raw["num_attention_heads"]),
            head_dim=head_dim,
            intermediate_size=int(raw["intermediate_size"]),
            vocab_size=int(raw["vocab_size"]),
            context_length=stretched_length(int(raw["max_position_embeddings"]), rope.scaling),
            rms_norm_eps=float(raw["rms_norm_eps"]),
            rope=rope,
            local_rope=None if nearby is None else _rope(raw, nearby, head_dim, folder),
            windows=_windows(raw, num_layers, folder),
            query_scale_size=raw.get("query_pre_attn_scalar"),
            attention_softcap=raw.get("attn_logit_softcapping"),
            logit_softcap=raw.get("final_logit_softcapping"),
            activation=_activation(raw),
            attention_bias=bool(raw.get("attention_bias")),
            mlp_bias=bool(raw.get("mlp_bias")),
            tied=raw.get("tie_word_embeddings"),
            experts=_experts(raw, num_layers),
        )


def _activation(raw: dict[str, Any]) -> str | None:
    name = raw.get("hidden_activation") or raw.get("hidden_act")
    return None if name is None else str(name)


def _rope_parameters(raw: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Of all layers; and of those with a window, if they differ. (transformers 4 and 5 have different keys.)"""
    parameters = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    top = {key: raw[key] for key in ("rope_theta", "partial_rotary_factor") if raw.get(key) is not None}
    if "full_attention" in parameters:
        return top | parameters["full_attention"], parameters["sliding_attention"]
    nearby = {"rope_theta": raw["rope_local_base_freq"]} if "rope_local_base_freq" in raw else None
    return top | parameters, nearby


def _rope(raw: dict[str, Any], parameters: dict[str, Any], head_dim: int, folder: Path) -> Rope:
    theta = parameters.get("rope_theta")
    return Rope(
        theta=float(10000.0 if theta is None else theta),
        dim=int(head_dim * parameters.get("partial_rotary_factor", 1.0)),
        scaling=_scaling(raw, parameters, folder),
    )


def _scaling(raw: dict[str, Any], parameters: dict[str, Any], folder: Path) -> RopeScaling | None:
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    if raw["model_type"] == "phi3" and kind in ("su", "yarn"):  # what early files call it
        kind = "longrope"
    original = raw.get("original_max_position_embeddings") or parameters.get("original_max_position_embeddings")
    original = int(original or raw["max_position_embeddings"])
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(float(parameters["factor"]))
        case "llama3":
            return Llama3Scaling(
                factor=float(parameters["factor"]),
                low_freq_factor=float(parameters["low_freq_factor"]),
                high_freq_factor=float(parameters["high_freq_factor"]),
                original_context_length=original,
            )
        case "yarn":
            return YarnScaling(
                factor=float(parameters["factor"]),
                original_context_length=original,
                attention_factor=_yarn_attention_factor(parameters),
                beta_fast=float(parameters.get("beta_fast") or 32),
                beta_slow=float(parameters.get("beta_slow") or 1),
                truncate=bool(parameters.get("truncate", True)),
            )
        case "longrope":
            return LongRopeScaling(
                short_factors=tuple(map(float, parameters["short_factor"])),
                long_factors=tuple(map(float, parameters["long_factor"])),
                original_context_length=original,
                attention_factor=_longrope_attention_factor(raw, parameters, original),
            )
    raise ModelLoadError(
        f"{folder}/config.json: rope scaling {kind!r} is not supported "
        "(default, linear, llama3, yarn, longrope are); choose another model"
    )


def _yarn_attention_factor(parameters: dict[str, Any]) -> float:
    """Peng et al. 2023, equation 22; with DeepSeek's two further figures where a file has them."""
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])
    growth = 0.1 * math.log(max(float(parameters["factor"]), 1.0))
    scale, scale_all = parameters.get("mscale"), parameters.get("mscale_all_dim")
    if scale and scale_all:
        return float((growth * scale + 1) / (growth * scale_all + 1))
    return growth + 1


def _longrope_attention_factor(raw: dict[str, Any], parameters: dict[str, Any], original: int) -> float:
    """Ding et al. 2024: sqrt(1 + ln(factor) / ln(trained context))."""
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])
    factor = float(parameters.get("factor") or raw["max_position_embeddings"] / original)
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


def _windows(raw: dict[str, Any], num_layers: int, folder: Path) -> tuple[int | None, ...]:
    window = raw.get("sliding_window")
    if window is None or raw.get("use_sliding_window") is False:
        return ()
    if kinds := raw.get("layer_types"):
        if unknown := set(kinds) - {"sliding_attention", "full_attention"}:
            raise ModelLoadError(f"{folder}/config.json: layer_types {unknown.pop()!r} is not supported")
        return layer_windows(int(window), [kind == "sliding_attention" for kind in kinds], num_layers)
    if "max_window_layers" in raw and raw["model_type"] != "qwen3_moe":  # how many layers come first without one
        full = int(raw["max_window_layers"])
        return layer_windows(int(window), [i >= full for i in range(num_layers)], num_layers)
    return layer_windows(int(window), raw.get("sliding_window_pattern"), num_layers)


def _experts(raw: dict[str, Any], num_layers: int) -> ExpertsConfig | None:
    num = raw.get("num_local_experts") or raw.get("num_experts")
    if not num:
        return None
    step = int(raw.get("decoder_sparse_step") or 1)
    every = frozenset(index for index in range(num_layers) if (index + 1) % step)
    return ExpertsConfig(
        num=int(num),
        per_token=int(raw["num_experts_per_tok"]),
        intermediate_size=int(raw.get("moe_intermediate_size") or raw["intermediate_size"]),
        normalise=bool(raw.get("norm_topk_prob")),
        dense_layers=every | frozenset(raw.get("mlp_only_layers") or ()),
    )
