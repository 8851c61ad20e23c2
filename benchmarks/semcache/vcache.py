"""The rule of vCache as Schroeder et al. describe it (arXiv 2502.03771), in our reading: no line of it is their code.

P(right | similarity) is a logistic curve fitted to what a stored question's misses showed. Its turning point is taken
at the upper end of a confidence band, and the request is asked with a probability that makes the expected error at most
delta. A question is stored when its answer was another one. The turning point's variance is that of the delta method;
a slight ridge stands in where the labels are separable.
"""

from statistics import NormalDist

import numpy as np

from benchmarks.semcache.corpus import Corpus
from benchmarks.semcache.neighbours import Neighbours

MIN_LABELS = 6
RIDGE = 1e-3
EPSILONS = np.linspace(1e-6, 1.0 - 1e-6, 50)


class VCache:
    """A threshold of its own for each stored question."""

    def __init__(self, corpus: Corpus, neighbours: Neighbours, delta: float, seed: int) -> None:
        self._intents = corpus.intents
        self._neighbours = neighbours
        self._delta = delta
        self._random = np.random.default_rng(seed)
        self._quantiles = _normal_quantiles(1.0 - EPSILONS)
        self._labels: dict[int, list[tuple[float, float]]] = {}
        self._curves: dict[int, tuple[float, float, float]] = {}
        self._seen: tuple[int, float] | None = None
        neighbours.clear()

    def answer(self, question: int) -> int | None:
        found = self._neighbours.search(question, 1)
        self._seen = found[0] if found else None
        if self._seen is None:
            return None
        nearest, similarity = self._seen
        if len(self._labels[nearest]) < MIN_LABELS:
            return None
        return nearest if self._random.random() > self._share_to_ask(nearest, similarity) else None

    def learn(self, question: int) -> None:
        same = False
        if self._seen is not None:
            nearest, similarity = self._seen
            same = bool(self._intents[nearest] == self._intents[question])
            self._labels[nearest].append((similarity, float(same)))
            self._curves.pop(nearest, None)
        if not same:
            self._labels[question] = [(0.0, 0.0), (1.0, 1.0)]
            self._neighbours.store(question)

    def _share_to_ask(self, nearest: int, similarity: float) -> float:
        if nearest not in self._curves:
            self._curves[nearest] = self._fit(np.array(self._labels[nearest]))
        turning, steepness, deviation = self._curves[nearest]
        turnings = np.clip(turning + self._quantiles * deviation, 0.0, 1.0)
        right = (1.0 - EPSILONS) / (1.0 + np.exp(np.clip(-steepness * (similarity - turnings), -50, 50)))
        return float(np.min(1.0 - self._delta / (1.0 - right)))

    def _fit(self, labels: np.ndarray) -> tuple[float, float, float]:
        """Turning point, steepness, and the turning point's standard deviation, for (n, 2) similarities and labels."""
        design = np.column_stack([np.ones(len(labels)), labels[:, 0]])
        weights = np.zeros(2)
        for _ in range(50):
            expected = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -30, 30)))
            gradient = design.T @ (expected - labels[:, 1]) + RIDGE * weights
            curvature = (design * (expected * (1 - expected))[:, None]).T @ design + RIDGE * np.eye(2)
            step = np.linalg.solve(curvature, gradient)
            weights -= np.clip(step, -10, 10)
            if np.abs(step).max() < 1e-6:
                break
        steepness = max(float(weights[1]), 1e-3)
        turning = float(-weights[0] / steepness)
        slope = np.array([-1.0, -turning]) / steepness
        return turning, steepness, float(np.sqrt(slope @ np.linalg.solve(curvature, slope)))


def _normal_quantiles(shares: np.ndarray) -> np.ndarray:
    return np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])
