"""How good a classifier or a ranking is, with intervals. Knows arrays of labels and scores, nothing of prompts."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Estimate = tuple[float, float, float]  # value, and the ends of its 95 % interval


def f1_per_class(truth: Labels, guess: Labels, num_classes: int) -> Floats:
    """(num_classes,); NaN for a class that neither side has. A negative guess is no guess."""
    both = np.bincount(truth[truth == guess], minlength=num_classes)
    total = np.bincount(truth, minlength=num_classes) + np.bincount(guess[guess >= 0], minlength=num_classes)
    return np.asarray(2 * both / np.where(total == 0, np.nan, total), np.float64)


def macro_f1(truth: Labels, guess: Labels, num_classes: int) -> float:
    """The mean of F1 over the classes that occur."""
    return float(np.nanmean(f1_per_class(truth, guess, num_classes)))


def apgr(hardness: Floats, weak_right: Bools, strong_right: Bools) -> float:
    """Average performance gap recovered (RouteLLM, Ong et al. 2024, section 3).

    The hardest share of the prompts goes to the strong model, the rest to the weak one; how much of the gap between the
    two models' accuracy is closed, averaged over all shares. Random order gives 0.5. NaN where there is no gap.
    """
    order = np.argsort(-hardness, kind="stable")
    gain = strong_right[order].astype(np.float64) - weak_right[order]
    closed = np.concatenate([[0.0], np.cumsum(gain)])  # (n + 1,)
    if closed[-1] == 0:
        return float("nan")
    return float(((closed[1:] + closed[:-1]) / 2).mean() / closed[-1])


def calibration_error(confidence: Floats, right: Bools, num_bins: int = 10) -> float:
    """Expected calibration error: the gap between confidence and accuracy, averaged over bins of equal width."""
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    gaps = np.bincount(bins, weights=confidence - right, minlength=num_bins)
    return float(np.abs(gaps).sum() / len(confidence))


def estimate(measure: Callable[[Labels], float], num_rows: int, seed: int, num_samples: int = 500) -> Estimate:
    """A measure of all rows and its 95 % interval by the percentile bootstrap; `measure` takes row indices."""
    random = np.random.default_rng(seed)
    values = [measure(random.integers(0, num_rows, num_rows)) for _ in range(num_samples)]
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return measure(np.arange(num_rows)), float(low), float(high)
