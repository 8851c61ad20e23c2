"""How many trials it takes to believe in an error rate: Clopper and Pearson's exact binomial bound, one-sided.

Clopper, Pearson: The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial. Biometrika 26, 1934.
"""

import math
from functools import lru_cache

MAX_TRIALS = 1 << 24


@lru_cache(maxsize=65536)
def trials_needed(errors: int, rate: float, doubt: float) -> int:
    """The fewest trials among which `errors` wrong ones show, but for a risk of `doubt`, a true rate below `rate`.

    With so many trials or more, the upper limit of confidence 1 - doubt is at most `rate`.
    """
    low, high = errors, errors + 1
    while _tail(errors, high, rate) > doubt and high < MAX_TRIALS:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _tail(errors, middle, rate) > doubt:
            low = middle
        else:
            high = middle
    return high


def upper_bound(errors: int, trials: int, doubt: float) -> float:
    """The upper limit, of confidence 1 - doubt, of the rate behind `errors` wrong of `trials`; 1.0 for no trial."""
    if errors >= trials:
        return 1.0
    low, high = errors / trials, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if _tail(errors, trials, middle) > doubt:
            low = middle
        else:
            high = middle
    return high


def _tail(errors: int, trials: int, rate: float) -> float:
    """The chance of at most `errors` wrong ones among `trials`, each wrong with probability `rate` (0 < rate < 1)."""
    if errors >= trials:
        return 1.0
    odds = math.log(rate) - math.log1p(-rate)
    logarithm = trials * math.log1p(-rate)  # of the chance of exactly none
    total = math.exp(logarithm)
    for number in range(1, errors + 1):
        logarithm += math.log(trials - number + 1) - math.log(number) + odds
        total += math.exp(logarithm)
    return min(1.0, total)
