"""GGUF metadata -> ModelConfig. Knows the keys of llama.cpp's architectures, and what it takes for granted.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; defaults: llama.cpp's src/models/*.cpp.
"""

import math

from engine.errors import ModelLoadError
from engine.loader.dequantise import dequantise
from engine.loader.gguf_file import REMEDY, GGUFFile
from engine.models.config import ExpertsConfig, ModelConfig, expect_layers, layer_windows, stretched_length
from engine.models.rope import DivisorScaling, LinearScaling, LongRopeScaling, Rope, RopeScaling, YarnScaling

_NAMES = {"qwen3moe": "qwen3_moe"}
_WINDOW_PATTERN = {"gemma2": 2, "gemma3": 6}  # every so many layers, one sees everything
_WIDE_SCALE_LAYERS = {"gemma2": 46, "gemma3": 62}  # the 27B models, known by their layers: scores by hidden / heads
_SOFTCAPS = {"gemma2": (50.0, 30.0)}
_UNSUPPORTED = (
    *("expert_shared_count", "expert_group_count", "expert_weights_scale", "attention.key_length_mla"),
    *("rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_log_multiplier"),
    *("rope.dimension_sections", "attention.max_alibi_bias", "attention.clamp_kqv", "attention.scale"),
    *("embedding_scale", "residual_scale", "logit_scale"),
)
_SOFTMAX = 1  # of expert_gating_func


def read_config(file: GGUFFile) -> ModelConfig:
    """Raises ModelLoadError, which names the key at fault."""
    stated = str(file.metadata.get("general.architecture", ""))
    figures = _Figures(file, stated)
    for key in _UNSUPPORTED:
        if figures.has(key):
            raise ModelLoadError(f"{file.path}: {stated}.{key} is not supported; choose another model")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelLoadError(f"{file.path}: tensor token_embd.weight is missing or no matrix; {REMEDY}")
    num_layers = expect_layers(figures.integer("block_count"))
    num_heads, hidden_size = figures.integer("attention.head_count"), figures.integer("embedding_length")
    head_dim = figures.integer("attention.key_length", hidden_size // max(num_heads, 1))
    if figures.integer("attention.value_length", head_dim) != head_dim:
        raise ModelLoadError(f"{file.path}: values of another size than keys are not supported; choose another model")
    rotary_dim = figures.integer("rope.dimension_count", head_dim)
    scaling = _scaling(file, figures)
    wide = _WIDE_SCALE_LAYERS.get(stated) == num_layers
    attention_softcap, logit_softcap = _SOFTCAPS.get(stated, (0.0, 0.0))
    experts = _experts(file, figures)
    return ModelConfig(
        architecture="mixtral" if stated == "llama" and experts else _NAMES.get(stated, stated),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=figures.integer("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        intermediate_size=figures.integer("feed_forward_length"),
        vocab_size=embedding.shape[0],
        context_length=stretched_length(figures.integer("context_length"), scaling),
        rms_norm_eps=figures.number("attention.layer_norm_rms_epsilon"),
        rope=Rope(figures.number("rope.freq_base", 10000.0), rotary_dim, scaling),
        local_rope=Rope(figures.number("rope.freq_base_swa", 10000.0), rotary_dim) if stated == "gemma3" else None,
        windows=_windows(file, figures, num_layers),
        query_scale_size=hidden_size / num_heads if wide else None,
        attention_softcap=figures.number("attn_logit_softcapping", attention_softcap) or None,
        logit_softcap=figures.number("final_logit_softcapping", logit_softcap) or None,
        experts=experts,
    )


class _Figures:
    """The architecture's own metadata, as numbers."""

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self._file = file
        self.architecture = architecture

    def has(self, key: str) -> bool:
        return self.value(key) is not None

    def value(self, key: str) -> object:
        return self._file.metadata.get(f"{self.architecture}.{key}")

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value):
            raise ModelLoadError(f"{self._file.path}: {self.architecture}.{key} is {value}, no whole number; {REMEDY}")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        value = self.value(key) if self.has(key) else default
        if value is None:
            raise ModelLoadError(f"{self._file.path}: metadata key {self.architecture}.{key} is missing; {REMEDY}")
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ModelLoadError(
                f"{self._file.path}: {self.architecture}.{key} is {str(value)[:40]!r}, no finite number; {REMEDY}"
            )
        return value


def _scaling(file: GGUFFile, figures: _Figures) -> RopeScaling | None:
    if "rope_factors_long.weight" in file.tensors:
        return LongRopeScaling(
            short_factors=_factors(file, "rope_factors_short.weight"),
            long_factors=_factors(file, "rope_factors_long.weight"),
            original_context_length=figures.integer("rope.scaling.original_context_length"),
            attention_factor=figures.number("rope.scaling.attn_factor", 1.0),
        )
    old = figures.has("rope.scale_linear") and not figures.has("rope.scaling.factor")
    factor_key = "rope.scale_linear" if old else "rope.scaling.factor"
    kind = figures.value("rope.scaling.type") or ("linear" if figures.has(factor_key) else "none")
    magnitude = figures.number("rope.scaling.attn_factor", 1.0)
    if magnitude != 1 and kind != "yarn":
        raise ModelLoadError(f"{file.path}: rope.scaling.attn_factor with rope scaling {kind!r} is not supported")
    if "rope_freqs.weight" in file.tensors:
        if kind != "none":
            raise ModelLoadError(f"{file.path}: rope scaling {kind!r} together with rope_freqs.weight is not supported")
        return DivisorScaling(_factors(file, "rope_freqs.weight"))
    match kind:
        case "none":
            return None
        case "linear":
            return LinearScaling(figures.number(factor_key))
        case "yarn":
            factor = figures.number("rope.scaling.factor")
            return YarnScaling(
                factor=factor,
                original_context_length=figures.integer("rope.scaling.original_context_length"),
                attention_factor=magnitude * (1 + 0.1 * math.log(max(factor, 1.0))),
                beta_fast=figures.number("rope.scaling.yarn_beta_fast", 32.0),
                beta_slow=figures.number("rope.scaling.yarn_beta_slow", 1.0),
            )
    raise ModelLoadError(
        f"{file.path}: rope scaling {kind!r} is not supported (linear, yarn are); choose another model"
    )


def _factors(file: GGUFFile, name: str) -> tuple[float, ...]:
    if name not in file.tensors:
        raise ModelLoadError(f"{file.path}: tensor {name} is missing; {REMEDY}")
    return tuple(dequantise(file.tensors[name]).flatten().tolist())


def _windows(file: GGUFFile, figures: _Figures, num_layers: int) -> tuple[int | None, ...]:
    window = figures.integer("attention.sliding_window", 4096 if figures.architecture == "gemma2" else 0)
    if window == 0:
        return ()
    pattern = figures.value("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return layer_windows(window, [bool(sliding) for sliding in pattern], num_layers)
    if pattern is None:
        return layer_windows(window, _WINDOW_PATTERN.get(figures.architecture), num_layers)
    return layer_windows(window, figures.integer("attention.sliding_window_pattern"), num_layers)


def _experts(file: GGUFFile, figures: _Figures) -> ExpertsConfig | None:
    num = figures.integer("expert_count", 0)
    if num == 0:
        return None
    if figures.integer("expert_gating_func", _SOFTMAX) != _SOFTMAX:
        raise ModelLoadError(f"{file.path}: experts are not chosen by a softmax here; choose another model")
    return ExpertsConfig(
        num=num,
        per_token=figures.integer("expert_used_count"),
        intermediate_size=figures.integer("expert_feed_forward_length", figures.integer("feed_forward_length")),
        normalise=True,  # as llama.cpp does in all the families here
    )
