"""What the nearest stored questions say about one question: which answer would be served, and how sure they look.

Knows similarities, answers' ids and comparisons of words; nothing of vectors, thresholds or labels.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from semcache.guards import veto
from semcache.text import Text

MAX_CANDIDATES = 32
MAX_COMPARED = 3  # the nearest ones, of which the guards are asked
SHARPNESS = 25.0  # of the soft vote: a neighbour 0.04 nearer counts e times as much
NOTHING_NEAR = 0.3  # cosine taken for the best other answer when there is none: that of unrelated questions, generously
STEP_BEYOND = 0.02  # with only one answer among all candidates, the next one is this much farther than the last

FEATURES = (
    "similarity",
    "similarity squared",
    "margin",
    "margin above 0.1",
    "vote",
    "unanimous",
    "soft vote",
    "soft vote's log-odds",
    "overlap",
    "veto",
    "keys",
    "mean similarity",
    "entropy",
    "passes",
    "margin x vote",
    "similarity x vote",
)


class Candidate(NamedTuple):
    """A stored question near to the one asked."""

    answer: str  # the id of its answer; several questions (alias keys) may have the same one
    similarity: float  # cosine


class Comparison(NamedTuple):
    """The asked and a stored question, word for word."""

    overlap: float  # of the words that carry the subject, those that both have, in [0, 1]
    vetoed: bool  # a guard tells the two apart


class Neighbourhood(NamedTuple):
    """The answer that would be served, and what speaks for it."""

    answer: str
    nearest: int  # the place among the candidates of the answer's nearest question
    features: npt.NDArray[np.float64]  # (len(FEATURES),)


def read(candidates: Sequence[Candidate], compare: Callable[[int], Comparison]) -> Neighbourhood:
    """The neighbourhood of one question: at least one candidate, nearest first; those after MAX_CANDIDATES don't count.

    The answer is the one with the greatest soft vote. `compare` takes a place among the candidates; it is asked of the
    answer's nearest question and of those of its questions that are among the MAX_COMPARED nearest.
    """
    candidates = candidates[:MAX_CANDIDATES]
    votes = _soft_votes(candidates)
    answer = max(votes, key=votes.__getitem__)
    places = [at for at, candidate in enumerate(candidates) if candidate.answer == answer]
    comparisons = [compare(at) for at in places if at == places[0] or at < MAX_COMPARED]
    return Neighbourhood(answer, places[0], np.array(_features(candidates, places, votes, comparisons)))


def compare_texts(asked: Text, stored: Text) -> Comparison:
    """The overlap is Jaccard's index of the two sets of content words; 0 where there is none."""
    here, there = set(asked.content), set(stored.content)
    return Comparison(len(here & there) / max(1, len(here | there)), veto(asked, stored) is not None)


def _soft_votes(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Each answer's share of the votes, by how near its questions are."""
    nearest = candidates[0].similarity
    votes: dict[str, float] = {}
    for candidate in candidates:
        weight = math.exp(SHARPNESS * (candidate.similarity - nearest))
        votes[candidate.answer] = votes.get(candidate.answer, 0.0) + weight
    total = sum(votes.values())
    return {answer: vote / total for answer, vote in votes.items()}


def _features(
    candidates: Sequence[Candidate], places: list[int], votes: dict[str, float], comparisons: list[Comparison]
) -> list[float]:
    best = candidates[places[0]]
    similarity, soft = best.similarity, votes[best.answer]
    margin = similarity - _best_other(candidates, best.answer)
    vote = len(places) / len(candidates)
    num_passed = sum(
        not compared.vetoed for at, compared in zip(places, comparisons, strict=False) if at < MAX_COMPARED
    )
    return [
        similarity,
        similarity**2,
        margin,
        max(margin - 0.1, 0.0),
        vote,
        float(len(votes) == 1),
        soft,
        math.log((soft + 0.005) / (1.0 - soft + 0.005)),
        comparisons[0].overlap,
        float(comparisons[0].vetoed),
        math.log1p(len(places)),
        sum(candidates[at].similarity for at in places) / len(places),
        -sum(share * math.log(share) for share in votes.values() if share > 0.0),
        num_passed / MAX_COMPARED,
        margin * vote,
        similarity * vote,
    ]


def _best_other(candidates: Sequence[Candidate], answer: str) -> float:
    """The similarity of the best candidate with another answer; with none in sight, a guess at it."""
    for candidate in candidates:
        if candidate.answer != answer:
            return candidate.similarity
    if len(candidates) < MAX_CANDIDATES:
        return min(NOTHING_NEAR, candidates[-1].similarity)
    return candidates[-1].similarity - STEP_BEYOND
