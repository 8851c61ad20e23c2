"""How much quality the operator asks for, and which tier that means. Knows probabilities and tiers, no prompts."""

from collections.abc import Sequence

from routing.types import Tier


def scores(tiers: Sequence[Tier], weak_right: float, strong_right: float) -> tuple[float, ...]:
    """For every tier, cheapest first, the probability that its answer is good enough.

    The cheapest tier is taken for the weak model of the training data, the dearest for the strong one, and those
    between lie on the straight line. It is a prior: measured on other models, good at ranking prompts within exam-like
    questions, and no more than a hint elsewhere.
    """
    steps = max(len(tiers) - 1, 1)
    return tuple(weak_right + (strong_right - weak_right) * step / steps for step in range(len(tiers)))


def temper(tiers: Sequence[Tier], home: int, scored: Sequence[float], quality: float) -> int:
    """The tier that `quality` makes of the one that claims the task: the cheapest whose score reaches its bar.

    The bar is never below the tier's own min_probability. For a tier cheaper than home it is 2 * quality, so that none
    of them serves at 0.5 or above, and any at 0; for home and the dearer ones 2 * quality - 1, so that home serves up
    to 0.5, and at 1 nothing but the dearest. If no tier reaches its bar, the dearest serves. A higher quality never
    gives a cheaper tier.
    """
    for index, (tier, score) in enumerate(zip(tiers, scored, strict=True)):
        bar = 2 * quality if index < home else 2 * quality - 1
        # At a bar of 1 nothing passes, however sure a head may be.
        if score >= max(bar, tier.min_probability) and bar < 1:
            return index
    return len(tiers) - 1
