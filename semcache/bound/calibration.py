"""From labelled examples to a judge and to the score from which on it may be believed. Knows no features."""

from typing import NamedTuple

import numpy as np

from semcache.bound.interval import trials_needed
from semcache.bound.logistic import Array, fit, predict

NUM_FOLDS = 5
CLOSED = 2.0  # a threshold that no probability reaches


class Calibration(NamedTuple):
    coefficients: Array  # (f + 1,) of the logistic score, intercept first
    threshold: float  # in [0, 1], or CLOSED


def calibrate(rows: Array, labels: Array, max_error_rate: float, doubt: float) -> Calibration:
    """Fits (n, f) rows to (n,) labels of 0 and 1, and finds the lowest threshold that keeps the bound.

    The threshold is read off scores that each fold gets from a fit without it: all examples teach, all of them judge,
    none judges what it taught (cross-fitting; Chernozhukov et al., Double/debiased machine learning, 2018).
    """
    folds = np.arange(len(rows)) % NUM_FOLDS
    scores = np.empty(len(rows))
    for fold in range(NUM_FOLDS):
        apart = folds == fold
        scores[apart] = predict(fit(rows[~apart], labels[~apart]), rows[apart])
    return Calibration(fit(rows, labels), lowest_threshold(scores, labels, max_error_rate, doubt))


def lowest_threshold(scores: Array, labels: Array, max_error_rate: float, doubt: float) -> float:
    """The lowest of the (n,) scores such that, of the examples from it on, the wrong ones are few enough.

    Few enough: the Clopper-Pearson upper limit of their share, of confidence 1 - doubt, is at most the rate.
    CLOSED if there is no such score.
    """
    order = np.argsort(-scores, kind="stable")
    errors = np.cumsum(labels[order] == 0.0)  # among the first, best ones
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # equal scores stay together
    for end in ends[::-1].tolist():
        if errors[end] <= max_error_rate * (end + 1) and end + 1 >= trials_needed(
            int(errors[end]), max_error_rate, doubt
        ):
            return float(scores[order[end]])
    return CLOSED
