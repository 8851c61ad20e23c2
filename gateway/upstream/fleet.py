"""The deployments of one model, and which of them a request should go to next.

Health comes first: one that its breaker leaves alone is passed over. Among the others `balance` decides, and weights
decide between equals.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from gateway.upstream.deployment import Deployment
from gateway.upstream.probe import probe

Balance = Literal["weighted", "least-busy", "least-latency"]

_BURDEN: Mapping[Balance, Callable[[Deployment, bool], float]] = {
    "weighted": lambda deployment, stream: 0.0,
    "least-busy": lambda deployment, stream: deployment.load.outstanding,
    "least-latency": lambda deployment, stream: deployment.load.cost_s(stream=stream),
}


class Fleet:
    """Mostly of one deployment, which then gets everything."""

    __slots__ = ("_burden", "deployments", "max_retries", "model", "total_s")

    def __init__(self, deployments: Sequence[Deployment], balance: Balance = "weighted") -> None:
        assert deployments
        self.model = deployments[0].model
        self.deployments = tuple(deployments)
        self.max_retries = max(deployment.max_retries for deployment in deployments)
        self.total_s = max((each.timeouts.total_s for each in deployments if each.timeouts is not None), default=0.0)
        self._burden = _BURDEN[balance]

    def pick(self, tried: Collection[Deployment], *, stream: bool) -> Deployment | None:
        """An untried one that may be called, which must then tell its breaker how it went; None if there is none."""
        untried = [each for each in self.deployments if each not in tried] if tried else self.deployments
        ready = [*filter(_may_be_called, untried)]
        if not ready:
            return None
        chosen = ready[0] if len(ready) == 1 else min(ready, key=lambda each: self._rank(each, stream))
        return chosen if chosen.breaker.allow() else None

    @property
    def soonest(self) -> Deployment:
        """The one that may be back before the others."""
        return min(self.deployments, key=lambda deployment: deployment.breaker.open_until)

    def _rank(self, deployment: Deployment, stream: bool) -> tuple[float, float]:
        """The least of several draws from exponential distributions is each one's in proportion to its weight."""
        return self._burden(deployment, stream), random.expovariate(deployment.weight)


def _may_be_called(deployment: Deployment) -> bool:
    """One that was broken is first asked for free, where it can be: no request is risked on it."""
    if deployment.breaker.untroubled:
        return True
    if deployment.breaker.is_open:
        return False
    if deployment.check is None or not deployment.breaker.is_half_open:
        return True
    probe(deployment)
    return False
