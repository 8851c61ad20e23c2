"""The optimiser finds the minimum, and the same one every time."""

import numpy as np
import pytest

from routing.fit import fit_logistic, fit_temperature, log_softmax, minimise


def test_log_softmax_is_normalised_and_does_not_overflow() -> None:
    values = log_softmax(np.array([[1000.0, 1000.0], [0.0, -5000.0]]))
    assert np.exp(values).sum(axis=1) == pytest.approx([1.0, 1.0])
    assert values[0] == pytest.approx(np.log([0.5, 0.5]))


def test_minimise_solves_a_badly_scaled_quadratic() -> None:
    scales = np.array([1.0, 100.0, 0.01])
    target = np.array([3.0, -2.0, 5.0])

    def bowl(x: np.ndarray) -> tuple[float, np.ndarray]:
        return float((scales * (x - target) ** 2).sum()), 2 * scales * (x - target)

    assert minimise(bowl, np.zeros(3), 200, tolerance=1e-9) == pytest.approx(target, abs=1e-5)


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    labels = np.arange(300) % 3
    return random.normal(size=(300, 5)) + 2.0 * np.eye(5)[labels], labels


def test_the_gradient_vanishes_at_the_fit(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    inputs, labels = blobs
    l2, weights = 0.05, np.ones(300)
    fitted = fit_logistic(inputs, labels, 3, l2=l2, weights=weights)
    padded = np.hstack([inputs, np.ones((300, 1))])
    error = np.exp(log_softmax(padded @ fitted)) - np.eye(3)[labels]
    shrink = np.vstack([np.full((5, 3), l2), np.zeros((1, 3))])
    assert padded.T @ error / 300 + shrink * fitted == pytest.approx(np.zeros((6, 3)), abs=1e-5)


def test_two_fits_are_the_same_to_the_bit(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    inputs, labels = blobs
    first, second = (fit_logistic(inputs, labels, 3, l2=0.1, weights=np.ones(300)) for _ in range(2))
    assert first.tobytes() == second.tobytes()


def test_row_weights_count_like_repeated_rows(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    inputs, labels = blobs
    doubled = np.where(labels == 0, 2.0, 1.0)
    weighted = fit_logistic(inputs, labels, 3, l2=0.05, weights=doubled / doubled.mean())
    again = labels == 0
    repeated_inputs, repeated = np.vstack([inputs, inputs[again]]), np.concatenate([labels, labels[again]])
    assert weighted == pytest.approx(
        fit_logistic(repeated_inputs, repeated, 3, l2=0.05, weights=np.ones(len(repeated))), abs=1e-3
    )


def test_temperature_undoes_overconfidence() -> None:
    random = np.random.default_rng(1)
    logits = random.normal(size=(20_000, 3))
    draws = random.random((20_000, 1)) < np.exp(log_softmax(logits)).cumsum(axis=1)
    labels = draws.argmax(axis=1)
    assert fit_temperature(3.0 * logits, labels) == pytest.approx(3.0, rel=0.1)
