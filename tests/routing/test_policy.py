"""A faulty policy is refused with every fault named."""

from collections.abc import Callable
from typing import Any

import pytest

from routing.errors import PolicyError
from routing.policy import check
from routing.types import Policy, Rule, Tier

PolicyOf = Callable[..., Policy]
TASKS = ("chat", "code", "maths")


def test_a_sound_policy_passes(policy_of: PolicyOf) -> None:
    check(policy_of(), TASKS)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"tiers": ()}, "tier: there is none"),
        ({"default_tier": "smal"}, "router.default_tier: no tier named 'smal'; did you mean 'small'?"),
        ({"fallback_tier": "xyz"}, "router.fallback_tier: no tier named 'xyz'; there are: small, medium, large"),
        ({"quality": 1.5}, "router.quality: must lie between 0 and 1, not 1.5"),
        ({"quality": float("nan")}, "router.quality: must lie between 0 and 1, not nan"),
        ({"min_confidence": -0.1}, "router.min_confidence: must lie between 0 and 1, not -0.1"),
        ({"rules": (Rule(tier="larg"),)}, "router.rules[0].tier: no tier named 'larg'; did you mean 'large'?"),
        ({"rules": (Rule(tier="large", task="math"),)}, "no task named 'math'; did you mean 'maths'?"),
        ({"rules": (Rule(tier="large", contains=(" ",)),)}, "router.rules[0].contains: an empty phrase"),
        (
            {"rules": (Rule(tier="large", min_prompt_tokens=9, max_prompt_tokens=3),)},
            "router.rules[0]: min_prompt_tokens 9 is above max_prompt_tokens 3",
        ),
    ],
)
def test_each_fault_is_named_with_its_place(policy_of: PolicyOf, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(PolicyError) as caught:
        check(policy_of(**changes), TASKS)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("tier", "fault"),
    [
        (Tier(name="small", models=("tinny",)), "tier.small.models: no model named 'tinny'; did you mean 'tiny'?"),
        (Tier(name="small", models=(), tasks=("coding",)), "tier.small.tasks: no task named 'coding'"),
        (Tier(name="small", models=(), min_probability=2), "tier.small.min_probability: must lie between 0 and 1"),
    ],
)
def test_a_tier_names_only_models_and_tasks_that_exist(policy_of: PolicyOf, tier: Tier, fault: str) -> None:
    with pytest.raises(PolicyError) as caught:
        check(policy_of(tiers=(tier,), fallback_tier="small"), TASKS)
    assert caught.value.faults == [line for line in caught.value.faults if line.startswith(fault)]


def test_all_faults_are_said_at_once(policy_of: PolicyOf) -> None:
    twice = (Tier(name="small", models=()), Tier(name="small", models=()))
    with pytest.raises(PolicyError) as caught:
        check(policy_of(tiers=twice, fallback_tier="small", quality=2, rules=(Rule(tier="huge"),)), TASKS)
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        "tier.small",
        "router.quality",
        "router.rules[0].tier",
    ]
