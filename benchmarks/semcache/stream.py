"""One shuffled stream of requests through one policy, and what came of it."""

from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.semcache.corpus import Corpus


class Policy(Protocol):
    """Says what is served, and learns from what had to be asked."""

    def answer(self, question: int) -> int | None:
        """The stored question whose answer is served; None: the model is asked."""
        ...

    def learn(self, question: int) -> None:
        """The model has answered the question that `answer` was just asked."""
        ...


class Score(NamedTuple):
    hits: float  # percent of all requests
    wrong_of_all: float  # percent
    wrong_of_served: float  # percent


def run(corpus: Corpus, policy: Policy, seed: int, num_requests: int) -> Score:
    """A request is a question of the corpus, none comes twice; a served answer is wrong if it is another intent's."""
    order = np.random.default_rng(seed).permutation(len(corpus.texts))[:num_requests].tolist()
    hits = wrong = 0
    for question in order:
        served = policy.answer(question)
        if served is None:
            policy.learn(question)
        else:
            hits += 1
            wrong += bool(corpus.intents[served] != corpus.intents[question])
    return Score(100 * hits / len(order), 100 * wrong / len(order), 100 * wrong / max(1, hits))
