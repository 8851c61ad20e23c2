"""Is a policy free of contradictions? Says everything that is wrong with it at once. Decides nothing."""

import difflib
from collections.abc import Iterable

from routing.errors import PolicyError
from routing.types import Policy, Rule


def check(policy: Policy, tasks: Iterable[str]) -> None:
    """Raises PolicyError with every fault: unknown tiers, models and tasks, shares outside 0 to 1, impossible rules.

    `tasks` are the kinds of work that the heads can tell apart; a tier that claims any other would never get it.
    """
    tiers = [tier.name for tier in policy.tiers]
    known_tasks = list(tasks)
    faults = [] if tiers else ["tier: there is none"]
    faults += [f"tier.{name}: defined more than once" for name in sorted({n for n in tiers if tiers.count(n) > 1})]
    for where, name in (("default_tier", policy.default_tier), ("fallback_tier", policy.fallback_tier)):
        faults += _unknown(f"router.{where}", "tier", name, tiers)
    for where, value in (("quality", policy.quality), ("min_confidence", policy.min_confidence)):
        faults += _not_a_share(f"router.{where}", value)
    for tier in policy.tiers:
        faults += _not_a_share(f"tier.{tier.name}.min_probability", tier.min_probability)
        for model in tier.models:
            faults += _unknown(f"tier.{tier.name}.models", "model", model, policy.candidates)
        for task in tier.tasks:
            faults += _unknown(f"tier.{tier.name}.tasks", "task", task, known_tasks)
    for index, rule in enumerate(policy.rules):
        faults += _faults_of_rule(f"router.rules[{index}]", rule, tiers, known_tasks)
    if faults:
        raise PolicyError(faults)


def _faults_of_rule(where: str, rule: Rule, tiers: list[str], tasks: list[str]) -> list[str]:
    faults = _unknown(f"{where}.tier", "tier", rule.tier, tiers)
    if rule.task is not None:
        faults += _unknown(f"{where}.task", "task", rule.task, tasks)
    if not all(phrase.strip() for phrase in rule.contains):
        faults.append(f"{where}.contains: an empty phrase is in every prompt")
    low, high = rule.min_prompt_tokens, rule.max_prompt_tokens
    if low is not None and high is not None and low > high:
        faults.append(f"{where}: min_prompt_tokens {low} is above max_prompt_tokens {high}")
    return faults


def _unknown(where: str, what: str, name: str, known: Iterable[str]) -> list[str]:
    names = list(known)
    if name in names:
        return []
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(names) or 'none'}"
    return [f"{where}: no {what} named {name!r}{hint}"]


def _not_a_share(where: str, value: float) -> list[str]:
    return [] if 0.0 <= value <= 1.0 else [f"{where}: must lie between 0 and 1, not {value}"]
