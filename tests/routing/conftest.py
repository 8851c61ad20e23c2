"""Policies of three tiers and heads whose judgement a test sets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from routing.heads import Heads, Meta, load_shipped
from routing.router import Router
from routing.signals import FEATURES
from routing.types import Candidate, Policy, Tier
from routing.vector import Vector

TASKS = ("chat", "code", "maths")
DIMENSION = 4
TIERS = (
    Tier(name="small", models=("tiny", "mini"), tasks=("chat",)),
    Tier(name="medium", models=("mini", "midi")),
    Tier(name="large", models=("grand",), tasks=("code", "maths")),
)
CANDIDATES = {
    "tiny": Candidate(model="tiny", context_tokens=2_000),
    "mini": Candidate(model="mini", capabilities=frozenset({"tools"}), context_tokens=16_000),
    "midi": Candidate(model="midi", capabilities=frozenset({"images"}), context_tokens=16_000),
    "grand": Candidate(model="grand", capabilities=frozenset({"tools", "images"}), context_tokens=128_000),
}


def make_policy(**changes: Any) -> Policy:
    fields: dict[str, Any] = {
        "tiers": TIERS,
        "candidates": CANDIDATES,
        "default_tier": "small",
        "fallback_tier": "medium",
    }
    return Policy(**(fields | changes))


def make_heads(weak: float = 0.4, strong: float = 0.9, sharpness: float = 10.0) -> Heads:
    """Heads that read the task off the embedding's first three numbers, and give every prompt the same difficulty."""
    full = np.zeros((DIMENSION + len(FEATURES) + 1, len(TASKS) + 2), np.float32)
    plain = np.zeros((len(FEATURES) + 1, len(TASKS) + 2), np.float32)
    full[:3, :3] = sharpness * np.eye(3)
    full[-1, -2:] = plain[-1, -2:] = [np.log(weak / (1 - weak)), np.log(strong / (1 - strong))]
    meta = Meta(embedder_id="toy", dimension=DIMENSION, tasks=TASKS, features=FEATURES, data="", command="", seed=0)
    bounds = np.array([[-1e9], [1e9]], np.float32).repeat(len(FEATURES), axis=1)
    return Heads(meta, full, plain, bounds)


def points_at(task: str, strength: float = 1.0) -> Vector:
    vector = np.zeros(DIMENSION, np.float32)
    vector[TASKS.index(task)] = strength
    return vector


@pytest.fixture(scope="session")
def policy_of() -> Callable[..., Policy]:
    """A policy of three tiers; keyword arguments change its fields."""
    return make_policy


@pytest.fixture(scope="session")
def heads_of() -> Callable[..., Heads]:
    """Toy heads of the given difficulty; see make_heads."""
    return make_heads


@pytest.fixture(scope="session")
def vector_of() -> Callable[..., Vector]:
    """An embedding that the toy heads take for the given task."""
    return points_at


@pytest.fixture(scope="session")
def shipped() -> Heads:
    return load_shipped(None)


@pytest.fixture(scope="session")
def router_of() -> Callable[..., Router]:
    """A router over the toy heads; keyword arguments change the policy."""
    return lambda heads=None, **changes: Router(make_policy(**changes), heads or make_heads())
