"""Notices that what is served has become worse than promised. Knows the outcomes of explored requests, nothing else.

A bet against the promise: a fortune shrinks a little with every right answer and grows much with every wrong one, at
odds that are fair if the error rate is just what was promised. Then, by Ville's inequality, it ever reaches 1 / doubt
with a chance of at most `doubt`, however often one looks.
Waudby-Smith, Ramdas: Estimating means of bounded random variables by betting. JRSS B 86, 2024.
"""

STAKES = (0.02, 0.1, 0.4)  # shares of the fortune that a right answer costs; the mean of the three fortunes counts


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
