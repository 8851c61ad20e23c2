"""The figures that shape a decoder-only transformer, whichever file format they came from."""

import math
from dataclasses import dataclass

from engine.errors import ModelLoadError

MAX_CONTEXT_LENGTH = 1 << 24  # the longest that any model claims is 10 million
_POSITIVE = (
    *("hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "intermediate_size", "vocab_size"),
    *("context_length", "rope_theta", "rms_norm_eps"),
)


def _expect_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:  # written so that NaN fails
        raise ModelLoadError(f"the model's config says {name} = {value}; the file is damaged")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched past the trained context.

    kind "linear" divides positions by `factor`; "llama3" stretches only low frequencies (Llama 3.1, Meta 2024).
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context_length: int = 8192

    def __post_init__(self) -> None:
        for name in ("factor", "low_freq_factor", "high_freq_factor", "original_context_length"):
            _expect_positive(f"rope scaling {name}", getattr(self, name))
        if self.low_freq_factor == self.high_freq_factor:
            raise ModelLoadError("rope scaling low_freq_factor equals high_freq_factor; the file is damaged")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Raises ModelLoadError for figures that no model has.

    `biases` names what says that the linear layers have some (a config key, a tensor); `rotary_dim` is how much of a
    head is rotated, None for all of it. A family that can't do something the config asks for must refuse it.
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
    rope_theta: float
    rms_norm_eps: float
    rope_scaling: RopeScaling | None = None
    activation: str = "silu"
    biases: tuple[str, ...] = ()
    rotary_dim: int | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _expect_positive(name, getattr(self, name))
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
