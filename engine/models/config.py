"""The figures that shape a decoder-only transformer, whichever file format they came from."""

from dataclasses import dataclass

from engine.errors import ModelLoadError


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
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

    def __post_init__(self) -> None:
        for name in ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "intermediate_size"):
            if getattr(self, name) <= 0:
                raise ModelLoadError(f"the model's config says {name} = {getattr(self, name)}; the file is damaged")
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ModelLoadError(
                f"{self.num_heads} heads over {self.num_kv_heads} key/value heads of dimension {self.head_dim} "
                "do not divide; the file is damaged"
            )
