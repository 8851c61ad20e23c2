"""The order in which models are tried, and which of them can do a request at all. Knows nothing of texts or tasks."""

from collections.abc import Iterable, Mapping

from routing.errors import NoCapableModel
from routing.types import Candidate, Policy, Prompt


class Ranking:
    """For every tier the whole order: its own models, then the next dearer tiers', then the next cheaper ones'."""

    def __init__(self, policy: Policy) -> None:
        self._candidates: Mapping[str, Candidate] = policy.candidates
        self._tiers = policy.tiers
        count = len(policy.tiers)
        self._walks = [(i, *range(i + 1, count), *range(i - 1, -1, -1)) for i in range(count)]

    def rank(self, tier: int, prompt: Prompt) -> tuple[int, tuple[str, ...]]:
        """(tier, models): the models that can do the request, best first, and the tier of the first of them.

        That is the given tier wherever one of its own models can. Raises NoCapableModel, naming what is missing.
        """
        able: dict[str, int] = {}  # model -> the tier it was met in; dicts keep their order
        for index in self._walks[tier]:
            for model in self._tiers[index].models:
                if model not in able and _can(self._candidates[model], prompt):
                    able[model] = index
        if not able:
            raise NoCapableModel(self._missing(prompt))
        return next(iter(able.values())), tuple(able)

    def why_not(self, tier: int, prompt: Prompt) -> str:
        """In words, why a tier does not serve although it was chosen."""
        models = [self._candidates[model] for model in self._tiers[tier].models]
        if not models:
            return f"{self._tiers[tier].name} has no usable model"
        return f"{self._tiers[tier].name} lacks {missing(models, prompt)}"

    def _missing(self, prompt: Prompt) -> str:
        everyone = [self._candidates[model] for tier in self._tiers for model in tier.models]
        return missing(everyone, prompt) if everyone else "a model, and no tier has any"


def missing(candidates: Iterable[Candidate], prompt: Prompt) -> str:
    """What none of the candidates has, in words: a capability, a combination of them, or room for the prompt."""
    everyone = list(candidates)
    nobody_has = prompt.needs - frozenset().union(*(candidate.capabilities for candidate in everyone))
    if nobody_has:
        return _listed(nobody_has)
    skilled = [candidate for candidate in everyone if prompt.needs <= candidate.capabilities]
    if not skilled:
        return f"{_listed(prompt.needs)} in one model"
    largest = max(candidate.context_tokens or 0 for candidate in skilled)
    room = f"a context of more than {_least(prompt)} tokens, and the largest is {largest}"
    return f"{_listed(prompt.needs)} with {room}" if prompt.needs else room


def _can(candidate: Candidate, prompt: Prompt) -> bool:
    if not prompt.needs <= candidate.capabilities:
        return False
    # Strictly less: a prompt that fills the context leaves no room for a single token of an answer.
    return candidate.context_tokens is None or _least(prompt) < candidate.context_tokens


def _least(prompt: Prompt) -> int:
    """An estimate that is too high must not turn away what would fit: the model itself counts exactly."""
    return prompt.num_tokens if prompt.at_least is None else prompt.at_least


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ordered[0] if len(ordered) == 1 else f"{', '.join(ordered[:-1])} and {ordered[-1]}"
