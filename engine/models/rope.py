"""How a model turns positions into rotations, and stretches them past its trained context. Knows no tensors."""

import math
from dataclasses import dataclass
from typing import TypeAlias

from engine.errors import ModelLoadError


def expect_positive(name: str, value: float) -> None:
    """Raises ModelLoadError, which names the figure."""
    if not 0 < value < math.inf:  # written so that NaN fails
        raise ModelLoadError(f"the model's config says {name} = {value}; the file is damaged")


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions divided by `factor` (Chen et al. 2023, arXiv:2306.15595)."""

    factor: float

    def __post_init__(self) -> None:
        expect_positive("rope scaling factor", self.factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Stretches only waves that are long against the trained context (Llama 3.1, Meta 2024, arXiv:2407.21783)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_length: int

    def __post_init__(self) -> None:
        for name in ("factor", "low_freq_factor", "high_freq_factor", "original_context_length"):
            expect_positive(f"rope scaling {name}", getattr(self, name))
        if self.low_freq_factor == self.high_freq_factor:
            raise ModelLoadError("rope scaling low_freq_factor equals high_freq_factor; the file is damaged")


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnScaling:
    """YaRN (Peng et al. 2023, arXiv:2309.00071): dimensions that turn more than beta_fast times in the trained context

    stay, those that turn less than beta_slow times are stretched, those between are blended. Queries and keys are
    multiplied by attention_factor. `truncate` rounds the borders of the blend outwards to whole dimensions.
    """

    factor: float
    original_context_length: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def __post_init__(self) -> None:
        for name in ("factor", "original_context_length", "attention_factor", "beta_fast", "beta_slow"):
            expect_positive(f"rope scaling {name}", getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRopeScaling:
    """LongRoPE (Ding et al. 2024, arXiv:2402.13753): each frequency has its own divisor, one set for contexts up to the

    trained one and another beyond. Queries and keys are multiplied by attention_factor.
    """

    short_factors: tuple[float, ...]
    long_factors: tuple[float, ...]
    original_context_length: int
    attention_factor: float

    def __post_init__(self) -> None:
        for name in ("original_context_length", "attention_factor"):
            expect_positive(f"rope scaling {name}", getattr(self, name))
        for factor in (*self.short_factors, *self.long_factors):
            expect_positive("a rope scaling short_factor or long_factor", factor)


@dataclass(frozen=True, slots=True)
class DivisorScaling:
    """A divisor for each frequency, as GGUF files hold the outcome of Llama 3's scaling."""

    divisors: tuple[float, ...]

    def __post_init__(self) -> None:
        for divisor in self.divisors:
            expect_positive("a divisor of rope_freqs", divisor)


RopeScaling: TypeAlias = LinearScaling | Llama3Scaling | YarnScaling | LongRopeScaling | DivisorScaling


@dataclass(frozen=True, slots=True)
class Rope:
    """The first `dim` elements of a head are rotated; unscaled, pair i turns by theta ** (-2 i / dim) a position."""

    theta: float
    dim: int
    scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        expect_positive("rope_theta", self.theta)
        expect_positive("the rotary dimension", self.dim)
        if self.dim % 2:
            raise ModelLoadError(f"the model's config rotates {self.dim} elements of a head, an odd number")
        if isinstance(self.scaling, YarnScaling) and self.theta <= 1:
            raise ModelLoadError(f"the model's config says rope_theta = {self.theta}, too small to be scaled")
        for factors in _factor_sets(self.scaling):
            if len(factors) != self.dim // 2:
                raise ModelLoadError(
                    f"rope scaling has {len(factors)} factors for {self.dim // 2} frequencies; the file is damaged"
                )


def _factor_sets(scaling: RopeScaling | None) -> tuple[tuple[float, ...], ...]:
    match scaling:
        case LongRopeScaling():
            return scaling.short_factors, scaling.long_factors
        case DivisorScaling():
            return (scaling.divisors,)
        case _:
            return ()
