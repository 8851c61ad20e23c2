"""Exact nearest stored questions in a stream, faster than an index: all similarities are computed once for all runs."""

import numpy as np
import numpy.typing as npt

NEAREST = 512  # remembered of each question; who needs more looks at all
BLOCK = 1000


class Neighbours:
    """The questions of a corpus, each stored or not."""

    def __init__(self, vectors: npt.NDArray[np.float32]) -> None:
        """(n, d), each row of length 1."""
        self._vectors = vectors
        count = min(NEAREST, len(vectors) - 1)
        self._nearest = np.empty((len(vectors), count), np.int32)
        self._similarities = np.empty((len(vectors), count), np.float32)
        for start in range(0, len(vectors), BLOCK):
            cosines = vectors[start : start + BLOCK] @ vectors.T
            rows = np.arange(len(cosines))
            cosines[rows, start + rows] = -2.0  # nobody is a neighbour of itself
            found = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            found = np.take_along_axis(found, np.argsort(-np.take_along_axis(cosines, found, 1), axis=1), 1)
            self._nearest[start : start + BLOCK] = found
            self._similarities[start : start + BLOCK] = np.take_along_axis(cosines, found, 1)
        self.clear()

    def clear(self) -> None:
        self._is_stored = np.zeros(len(self._vectors), bool)
        self.stored: list[int] = []

    def store(self, question: int) -> None:
        self._is_stored[question] = True
        self.stored.append(question)

    def search(self, question: int, k: int) -> list[tuple[int, float]]:
        """The at most `k` nearest stored questions and their cosines, nearest first."""
        places = np.flatnonzero(self._is_stored[self._nearest[question]])[:k]
        if len(places) == min(k, len(self.stored)):
            found, similarities = self._nearest[question][places], self._similarities[question][places]
        else:
            cosines = self._vectors[self.stored] @ self._vectors[question]
            places = np.argsort(-cosines)[:k]
            found, similarities = np.array(self.stored)[places], cosines[places]
        return list(zip(found.tolist(), similarities.tolist(), strict=True))
