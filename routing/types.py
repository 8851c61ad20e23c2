"""What crosses the router's border. Imports no numpy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from routing.vector import Vector


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """A named group of models, in order of preference, cheapest tier first in a Policy."""

    name: str
    models: tuple[str, ...]
    tasks: tuple[str, ...] = ()  # task names this tier takes by default
    min_probability: float = 0.0  # take this tier only if its answer is good enough with at least this probability


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A model that may serve: what it can do and hold."""

    model: str
    capabilities: frozenset[str] = frozenset()  # "tools", "images", "json_schema", "logprobs", ...
    context_tokens: int | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    tiers: tuple[Tier, ...]
    candidates: Mapping[str, Candidate]
    default_tier: str
    fallback_tier: str  # where a prompt goes that the heads are not sure about
    quality: float = 0.5  # 0: as cheap as possible; 1: as good as possible
    min_confidence: float = 0.5
    rules: tuple["Rule", ...] = ()


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The first rule whose every stated condition holds decides."""

    tier: str
    name: str = ""
    task: str | None = None
    contains: tuple[str, ...] = ()  # any of them, whole words, case-insensitive
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the router sees it: the user's own last turn, not the constant system prompt."""

    text: str
    embedding: "Vector | None" = None
    num_tokens: int = 0  # of the whole request, estimated
    at_least: int | None = None  # tokens it surely has: what a context must hold. None: as estimated
    needs: frozenset[str] = frozenset()
    tier: str | None = None  # asked for by header


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision was made from; kept so that a what-if can replay it."""

    task: str | None = None
    task_confidence: float | None = None
    features: dict[str, float] = {}
    scores: dict[str, float] = {}  # tier -> probability that its answer is good enough


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    tier: str
    candidates: tuple[str, ...]  # model names, in the order to try
    reason: str  # a person can read it: "task=code 0.83", "header", "explicit model", "low_confidence 0.31"
    confidence: float | None = None
    signals: Signals = Signals()
