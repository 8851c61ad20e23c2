"""The figures that shape a decoder-only transformer, whichever file format they came from."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import ModelLoadError
from engine.models.rope import Rope, RopeScaling, YarnScaling, expect_positive

MAX_CONTEXT_LENGTH = 1 << 24  # the longest that any model claims is 10 million
MAX_LAYERS = 1 << 12
_POSITIVE = (
    *("hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "intermediate_size", "vocab_size"),
    *("context_length", "rms_norm_eps"),
)
_POSITIVE_OR_NONE = ("query_scale_size", "attention_softcap", "logit_softcap")


def expect_layers(num_layers: int) -> int:
    """num_layers, if a model may have as many; a damaged file's figure must not cost memory. Raises ModelLoadError."""
    expect_positive("num_layers", num_layers)
    if num_layers > MAX_LAYERS:
        raise ModelLoadError(
            f"the model's config says num_layers = {num_layers}, more than {MAX_LAYERS}; the file is damaged"
        )
    return num_layers


def stretched_length(length: int, scaling: RopeScaling | None) -> int:
    """YaRN files may state the trained context, and leave it to the reader to multiply it by the factor."""
    if isinstance(scaling, YarnScaling):
        return max(length, int(scaling.factor * scaling.original_context_length))
    return length


def layer_windows(window: int, sliding: Sequence[bool] | int | None, num_layers: int) -> tuple[int | None, ...]:
    """`sliding`: whether each layer has the window; or n, if all have it but every n-th; or None, if all have it.

    Raises ModelLoadError.
    """
    expect_positive("sliding_window", window)
    if sliding is None:
        return (window,) * num_layers
    if isinstance(sliding, int):
        expect_positive("sliding_window_pattern", sliding)
        return tuple(window if (index + 1) % sliding else None for index in range(num_layers))
    return tuple(window if has else None for has in sliding)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """`num` experts of `intermediate_size` in every layer but the `dense_layers`; `per_token` of them run a token.

    `normalise`: the chosen experts' shares are scaled to sum to 1.
    """

    num: int
    per_token: int
    intermediate_size: int
    normalise: bool
    dense_layers: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for name in ("num", "per_token", "intermediate_size"):
            expect_positive(f"experts: {name}", getattr(self, name))
        if self.per_token > self.num:
            raise ModelLoadError(
                f"the model's config picks {self.per_token} of {self.num} experts; the file is damaged"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Raises ModelLoadError for figures that no model has.

    `windows`: how many tokens a query sees in each layer, itself included; None sees all. `local_rope` is for the
    layers with a window, if they rotate otherwise. Attention scores are scaled by query_scale_size ** -0.5 (None:
    head_dim). The softcaps bound attention scores and logits. `activation` and `tied` (the head is the embedding) are
    None where the file does not say.
    """

    architecture: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    context_length: int
    rms_norm_eps: float
    rope: Rope
    local_rope: Rope | None = None
    windows: tuple[int | None, ...] = ()
    query_scale_size: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    activation: str | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    tied: bool | None = None
    experts: ExpertsConfig | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            expect_positive(name, getattr(self, name))
        for name in _POSITIVE_OR_NONE:
            if (value := getattr(self, name)) is not None:
                expect_positive(name, value)
        if self.context_length > MAX_CONTEXT_LENGTH:
            raise ModelLoadError(
                f"the model's config says context_length = {self.context_length}, more than {MAX_CONTEXT_LENGTH}; "
                "the file is damaged"
            )
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ModelLoadError(
                f"{self.num_heads} heads over {self.num_kv_heads} key/value heads of dimension {self.head_dim} "
                "do not divide; the file is damaged"
            )
        for rope in (self.rope, self.local_rope):
            if rope is not None and rope.dim > self.head_dim:
                raise ModelLoadError(
                    f"the model's config rotates {rope.dim} elements of heads of {self.head_dim}; the file is damaged"
                )
        if self.windows and len(self.windows) != self.num_layers:
            raise ModelLoadError(
                f"the model's config has {len(self.windows)} kinds of attention for {self.num_layers} layers; "
                "the file is damaged"
            )
        for window in self.windows:
            if window is not None:
                expect_positive("sliding_window", window)

    def window(self, layer: int) -> int | None:
        return self.windows[layer] if self.windows else None
