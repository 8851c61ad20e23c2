"""The fit, held against a known curve and against input that has no single best curve."""

import numpy as np
import pytest

from semcache.bound.logistic import fit, predict


def test_a_known_curve_is_found_again() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(20_000, 3)) * [1.0, 10.0, 0.1]
    true = np.array([-0.5, 1.0, 0.2, -5.0])
    labels = (random.random(20_000) < predict(true, rows)).astype(float)
    assert fit(rows, labels) == pytest.approx(true, rel=0.1, abs=0.05)


def test_scikit_learn_finds_the_same_curve() -> None:
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(1)
    rows = random.normal(size=(500, 4))
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    labels = (rows[:, 0] + random.normal(size=500) > 0.5).astype(float)
    theirs = LogisticRegression(C=1.0, tol=1e-8).fit(rows, labels)
    assert fit(rows, labels)[1:] == pytest.approx(theirs.coef_[0], abs=2e-3)


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (np.arange(100.0).reshape(-1, 1), np.arange(100) >= 50),  # separable
        (np.ones((50, 2)), np.arange(50) % 2),  # columns that never vary
        (np.column_stack([np.arange(60.0)] * 2), np.arange(60) % 3 == 0),  # one column twice
        (np.arange(30.0).reshape(-1, 1), np.ones(30)),  # labels of one kind
        (np.arange(30.0).reshape(-1, 1) * 1e12, np.arange(30) > 10),
    ],
)
def test_whatever_the_rows_the_coefficients_are_finite(rows: np.ndarray, labels: np.ndarray) -> None:
    coefficients = fit(rows, labels.astype(float))
    assert np.isfinite(coefficients).all()
    probabilities = predict(coefficients, rows)
    assert ((probabilities > 0.0) & (probabilities < 1.0)).all()
