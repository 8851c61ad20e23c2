"""Ridge-penalised logistic regression by Newton's method (iteratively reweighted least squares). Knows no features.

Hastie, Tibshirani, Friedman: The Elements of Statistical Learning, 4.4.1.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MAX_STEPS = 12
CONVERGED = 1e-3  # the largest change of a coefficient, in standard deviations of its column
MAX_LOGIT = 30.0


def sigmoid(logits: Array) -> Array:
    """Element by element; logits beyond ±30 count as ±30, so that no probability is 0 or 1."""
    clipped: Array = np.clip(logits, -MAX_LOGIT, MAX_LOGIT)
    return 1.0 / (1.0 + np.exp(-clipped))


def fit(rows: Array, labels: Array, ridge: float = 1.0) -> Array:
    """The (f + 1,) coefficients, intercept first, for (n, f) rows and (n,) labels of 0 and 1.

    The penalty, one pseudo-row of weight `ridge` for each coefficient, is on standardised columns and spares the
    intercept; a column that never varies gets a coefficient of 0, and labels of one kind alone a bounded intercept.
    """
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    scale[scale < 1e-9] = np.inf
    design = np.column_stack([np.ones(len(rows)), (rows - mean) / scale])  # (n, f + 1)
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 1e-3
    coefficients = np.zeros(design.shape[1])
    for _ in range(MAX_STEPS):
        expected = sigmoid(design @ coefficients)  # (n,)
        gradient = design.T @ (expected - labels) + penalty * coefficients
        curvature = (design * (expected * (1.0 - expected))[:, None]).T @ design + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        coefficients -= np.clip(step, -MAX_LOGIT / 6, MAX_LOGIT / 6)
        if np.abs(step).max() < CONVERGED:
            break
    slopes = coefficients[1:] / scale
    return np.concatenate([[coefficients[0] - slopes @ mean], slopes])


def predict(coefficients: Array, rows: Array) -> Array:
    """(n,) probabilities for (n, f) rows; a single (f,) row gives a number."""
    return sigmoid(coefficients[0] + rows @ coefficients[1:])
