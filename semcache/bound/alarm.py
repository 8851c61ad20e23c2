"""Notices that what is served has become worse than promised. Knows the outcomes of explored requests, nothing else.

A bet against the promise: whoever holds that the error rate is at most `rate` would have to lose the stake slowly at
every right answer and win at every wrong one on balance nothing. By Ville's inequality the fortune reaches 1 / doubt
with a chance of at most `doubt`, however long one looks, as long as the promise is kept.
Waudby-Smith, Ramdas: Estimating means of bounded random variables by betting. JRSS B 86, 2024.
"""

STAKES = (0.02, 0.1, 0.4)  # shares of the fortune lost at a right answer to `rate` odds; the mean of the three counts


class Alarm:
    """Rings when explored requests are wrong more often than `rate`."""

    def __init__(self, rate: float, doubt: float = 0.01) -> None:
        self.rate = rate
        self.doubt = doubt
        self.fortunes = [1.0] * len(STAKES)

    def observe(self, wrong: bool) -> bool:
        """One explored request; whether the alarm rings."""
        gain = (float(wrong) - self.rate) / self.rate  # its mean is at most 0 while the promise is kept
        self.fortunes = [fortune * (1.0 + stake * gain) for fortune, stake in zip(self.fortunes, STAKES, strict=True)]
        return self.rings

    @property
    def rings(self) -> bool:
        return sum(self.fortunes) / len(self.fortunes) >= 1.0 / self.doubt
