"""The policies side by side: a cosine threshold, vCache's rule, and the learner of `semcache.bound`."""

from functools import lru_cache

import numpy as np

from benchmarks.semcache.corpus import Corpus
from benchmarks.semcache.neighbours import Neighbours
from semcache.bound.learner import Learner
from semcache.bound.neighbourhood import (
    FEATURES,
    MAX_CANDIDATES,
    Candidate,
    Comparison,
    Neighbourhood,
    compare_texts,
    read,
)
from semcache.text import Text


class Cosine:
    """Serves the nearest stored question's answer from a similarity on; every miss is stored."""

    def __init__(self, neighbours: Neighbours, threshold: float) -> None:
        self._neighbours = neighbours
        self._threshold = threshold
        neighbours.clear()

    def answer(self, question: int) -> int | None:
        for nearest, similarity in self._neighbours.search(question, 1):
            if similarity >= self._threshold:
                return nearest
        return None

    def learn(self, question: int) -> None:
        self._neighbours.store(question)


class Pairs:
    """Comparisons of the corpus's questions, word for word, each made once for all runs."""

    def __init__(self, corpus: Corpus) -> None:
        self._texts = [Text(text) for text in corpus.texts]
        self.compare = lru_cache(maxsize=None)(self._compare)

    def _compare(self, asked: int, stored: int) -> Comparison:
        return compare_texts(self._texts[asked], self._texts[stored])


class Bound:
    """Serves what the learner allows; a miss with a known answer becomes one more key of that answer."""

    def __init__(self, corpus: Corpus, neighbours: Neighbours, pairs: Pairs, learner: Learner) -> None:
        self._intents = corpus.intents
        self._neighbours = neighbours
        self._pairs = pairs
        self.learner = learner
        self._answers: dict[int, int] = {}  # stored question -> the first question with that answer
        self._seen: tuple[list[int], Neighbourhood] | None = None
        self._explores = False
        neighbours.clear()

    @classmethod
    def at(cls, corpus: Corpus, neighbours: Neighbours, pairs: Pairs, max_error_rate: float, seed: int) -> "Bound":
        return cls(corpus, neighbours, pairs, Learner(max_error_rate, len(FEATURES), seed=seed))

    def answer(self, question: int) -> int | None:
        found = self._neighbours.search(question, MAX_CANDIDATES)
        self._seen = None
        if not found:
            return None
        candidates = [Candidate(str(self._answers[stored]), similarity) for stored, similarity in found]
        seen = read(candidates, lambda at: self._pairs.compare(question, found[at][0]))
        self._seen = [stored for stored, _ in found], seen
        decision = self.learner.decide(seen.features)
        self._explores = decision == "explore"
        return found[seen.nearest][0] if decision == "serve" else None

    def learn(self, question: int) -> None:
        """The fresh answer is compared with those of the candidates, and with no other."""
        self._answers[question] = question
        if self._seen is not None:
            stored, seen = self._seen
            same = [at for at in stored if self._intents[at] == self._intents[question]]
            self.learner.observe(seen.features, stored[seen.nearest] in same, explored=self._explores)
            self._unite(question, same)
        self._neighbours.store(question)

    def _unite(self, question: int, same: list[int]) -> None:
        """The answers that are the fresh one's equals are one answer from now on."""
        if not same:
            return
        answers = {self._answers[at] for at in same}
        kept = self._answers[question] = min(answers)
        if len(answers) > 1:
            self._answers = {at: kept if answer in answers else answer for at, answer in self._answers.items()}


class VCache:
    """A threshold of its own for each stored question, by the rule of Schroeder et al., vCache (arXiv 2502.03771).

    Written from the paper: P(right | similarity) is a logistic curve fitted to what the stored question's misses
    showed; its turning point is taken at the upper end of a confidence band, and the request is asked with a
    probability that makes the expected error at most delta. A question is stored when its answer was another one.
    The turning point's variance is that of the delta method; a slight ridge stands in where the labels are separable.
    """

    MIN_LABELS = 6
    RIDGE = 1e-3
    EPSILONS = np.linspace(1e-6, 1.0 - 1e-6, 50)

    def __init__(self, corpus: Corpus, neighbours: Neighbours, delta: float, seed: int) -> None:
        self._intents = corpus.intents
        self._neighbours = neighbours
        self._delta = delta
        self._random = np.random.default_rng(seed)
        self._quantiles = _normal_quantiles(1.0 - self.EPSILONS)
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
        if len(self._labels[nearest]) < self.MIN_LABELS:
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
        right = (1.0 - self.EPSILONS) / (1.0 + np.exp(np.clip(-steepness * (similarity - turnings), -50, 50)))
        return float(np.min(1.0 - self._delta / (1.0 - right)))

    def _fit(self, labels: np.ndarray) -> tuple[float, float, float]:
        """Turning point, steepness, and the turning point's standard deviation, for (n, 2) similarities and labels."""
        design = np.column_stack([np.ones(len(labels)), labels[:, 0]])
        weights = np.zeros(2)
        for _ in range(50):
            expected = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -30, 30)))
            gradient = design.T @ (expected - labels[:, 1]) + self.RIDGE * weights
            curvature = (design * (expected * (1 - expected))[:, None]).T @ design + self.RIDGE * np.eye(2)
            step = np.linalg.solve(curvature, gradient)
            weights -= np.clip(step, -10, 10)
            if np.abs(step).max() < 1e-6:
                break
        steepness = max(float(weights[1]), 1e-3)
        turning = float(-weights[0] / steepness)
        slope = np.array([-1.0, -turning]) / steepness
        return turning, steepness, float(np.sqrt(slope @ np.linalg.solve(curvature, slope)))


def _normal_quantiles(shares: np.ndarray) -> np.ndarray:
    from statistics import NormalDist

    return np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])
