"""Multinomial logistic regression in plain numpy, deterministic. Knows matrices and nothing of prompts."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_MEMORY = 10  # pairs that L-BFGS remembers


def log_softmax(logits: Array) -> Array:
    """Row-wise, (n, k) -> (n, k), in a way that does not overflow."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), np.float64)


def fit_logistic(
    inputs: Array, labels: npt.NDArray[np.int64], num_classes: int, *, l2: float, weights: Array, max_steps: int = 300
) -> Array:
    """Weights of shape (d + 1, k), the bias last, that minimise the weighted cross-entropy plus l2/2 * |W|^2.

    `inputs` is (n, d), standardised; `labels` (n,) in 0..k-1; `weights` (n,) of the rows, with mean 1. The bias isn't
    shrunk. Starts at zero and is solved by L-BFGS (Liu and Nocedal 1989), so it needs no seed.
    """
    num_rows, num_inputs = inputs.shape
    padded = np.hstack([inputs, np.ones((num_rows, 1))])  # (n, d + 1)
    wanted = np.zeros((num_rows, num_classes))  # (n, k)
    wanted[np.arange(num_rows), labels] = 1.0
    shrink = np.full((num_inputs + 1, 1), l2)
    shrink[-1] = 0.0

    def objective(flat: Array) -> tuple[float, Array]:
        matrix = flat.reshape(num_inputs + 1, num_classes)
        log_p = log_softmax(padded @ matrix)
        loss = -(weights * log_p[np.arange(num_rows), labels]).mean() + 0.5 * float((shrink * matrix**2).sum())
        error = (np.exp(log_p) - wanted) * (weights / num_rows)[:, None]  # (n, k)
        return float(loss), (padded.T @ error + shrink * matrix).ravel()

    start = np.zeros((num_inputs + 1) * num_classes)
    return minimise(objective, start, max_steps).reshape(num_inputs + 1, num_classes)


def minimise(
    objective: Callable[[Array], tuple[float, Array]], start: Array, max_steps: int, tolerance: float = 1e-6
) -> Array:
    """The minimum of a smooth convex function by L-BFGS with a backtracking (Armijo) line search."""
    point = start
    value, gradient = objective(point)
    pairs: list[tuple[Array, Array]] = []
    for _ in range(max_steps):
        if np.abs(gradient).max() < tolerance:
            break
        direction = -_times_inverse_hessian(gradient, pairs)
        slope = float(gradient @ direction)
        size = 1.0 if pairs else 1.0 / max(float(np.linalg.norm(gradient)), 1.0)
        for _ in range(40):
            next_point = point + size * direction
            next_value, next_gradient = objective(next_point)
            if next_value <= value + 1e-4 * size * slope:
                break
            size *= 0.5
        else:
            break  # no decrease along a descent direction: at the limit of float64
        step, change = next_point - point, next_gradient - gradient
        if float(step @ change) > 1e-12:
            pairs = [*pairs[1 - _MEMORY :], (step, change)]
        point, value, gradient = next_point, next_value, next_gradient
    return point


def _times_inverse_hessian(gradient: Array, pairs: list[tuple[Array, Array]]) -> Array:
    """The two-loop recursion: the remembered curvature's inverse applied to the gradient."""
    result = gradient.copy()
    alphas: list[float] = []
    for step, change in reversed(pairs):
        alpha = float(step @ result) / float(change @ step)
        alphas.append(alpha)
        result -= alpha * change
    if pairs:
        step, change = pairs[-1]
        result *= float(step @ change) / float(change @ change)
    for (step, change), alpha in zip(pairs, reversed(alphas), strict=True):
        beta = float(change @ result) / float(change @ step)
        result += (alpha - beta) * step
    return result


def fit_temperature(logits: Array, labels: npt.NDArray[np.int64]) -> float:
    """The divisor of logits (n, k) that calibrates their softmax best (Guo et al. 2017), by golden section."""

    def loss(log_temperature: float) -> float:
        scaled = log_softmax(logits / np.exp(log_temperature))
        return -float(scaled[np.arange(len(labels)), labels].mean())

    ratio = (5**0.5 - 1) / 2
    low, high = -1.5, 2.5
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return float(np.exp((low + high) / 2))
