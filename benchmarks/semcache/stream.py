"""One shuffled stream of requests through one policy, and what came of it."""

import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.semcache.corpus import Corpus

GPTCACHE = Path(__file__).with_name("gptcache_stream.py")


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


def order(corpus: Corpus, seed: int, num_requests: int) -> list[int]:
    """The questions asked, one after the other; none comes twice."""
    return np.random.default_rng(seed).permutation(len(corpus.texts))[:num_requests].tolist()


def run(corpus: Corpus, policy: Policy, seed: int, num_requests: int) -> Score:
    """A served answer is wrong if it is another intent's."""
    hits = wrong = 0
    for question in order(corpus, seed, num_requests):
        served = policy.answer(question)
        if served is None:
            policy.learn(question)
        else:
            hits += 1
            wrong += bool(corpus.intents[served] != corpus.intents[question])
    return score(hits, wrong, num_requests)


def run_gptcache(python: Path, corpus: Corpus, seed: int, num_requests: int) -> Score:
    """The same stream through GPTCache, by the Python of an environment with gptcache, sqlalchemy and faiss-cpu."""
    asked = order(corpus, seed, num_requests)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stream.npz"
        np.savez(file, vectors=corpus.vectors[asked], intents=corpus.intents[asked])
        printed = subprocess.run([python, GPTCACHE, file], check=True, capture_output=True, text=True).stdout
    hits, wrong = map(int, printed.split())
    return score(hits, wrong, num_requests)


def score(hits: int, wrong: int, num_requests: int) -> Score:
    return Score(100 * hits / num_requests, 100 * wrong / num_requests, 100 * wrong / max(1, hits))
