"""Two policies: a threshold on the cosine, and the learner of `semcache.bound`."""

from functools import lru_cache

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
