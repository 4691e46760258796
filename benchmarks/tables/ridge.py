"""Regularised least squares from a Gram matrix, with its settings chosen on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from benchmarks.tables.common import accuracy

Array = Any

MOST_CHOOSING = 6000
PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
# Squared bandwidths of the second layer, as multiples of the median squared distance of the features.
SECOND_WIDTHS = (2.0, 4.0, 8.0)


def gram(
    features: Array, others: Array | None = None, *, block: int = 1024, dtype: Any = np.float64
) -> Array:
    """Inner products of float32 features, summed in float64 over blocks of columns.

    Products within a block are made in `dtype`: float32 is twice as fast, float64 serves penalties
    below the rounding of float32.
    """
    others = features if others is None else others
    total = np.zeros((len(features), len(others)))
    for start in range(0, features.shape[1], block):
        part = slice(start, start + block)
        total += features[:, part].astype(dtype) @ others[:, part].astype(dtype).T
    return total


def gaussian_of(products: Array, left: Array, right: Array, gamma: float) -> Array:
    """Gaussian kernel of rows given by their inner products and squared norms: the second layer, exact."""
    squared = left[:, None] + right - 2 * products
    return np.exp(-gamma * np.maximum(squared, 0))


def predictions(
    products: Array, cross: Array, targets: Array, penalties: Sequence[float]
) -> Iterator[tuple[float, Array]]:
    """Predictions for the rows of `cross` at each penalty, with a free intercept.

    Parameters
    ----------
    products : ndarray of shape (n, n)
        Gram matrix of the training rows.
    cross : ndarray of shape (m, n)
        Inner products of other rows with them.
    targets : ndarray of shape (n,) or (n, n_targets)
        What to predict.
    penalties : sequence of float
        Each is added to the diagonal of the centred Gram matrix.
    """
    means, mean = products.mean(axis=0), targets.mean(axis=0)
    centred = products - means - means[:, None] + means.mean()
    cross = cross - cross.mean(axis=1, keepdims=True) - means + means.mean()
    for penalty in penalties:
        regular = centred.copy()
        regular[np.diag_indices_from(regular)] += penalty
        try:
            factor = cho_factor(regular, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
        yield penalty, cross @ cho_solve(factor, targets - mean, check_finite=False) + mean


def inner_errors(
    products: Array, targets: Array, folds: Array, penalties: Sequence[float]
) -> dict[Any, float]:
    """Squared errors of inner cross-validation: {(outer fold, penalty): mean over the other folds}.

    The rows outside two folds train one model, which judges for either fold by its error on the other.
    """
    errors: dict[Any, list[float]] = {}
    names = np.unique(folds)
    for pair in combinations(names, 2):
        held = np.isin(folds, pair)
        found = predictions(
            products[np.ix_(~held, ~held)], products[np.ix_(held, ~held)], targets[~held], penalties
        )
        for penalty, predicted in found:
            squared = (predicted - targets[held]) ** 2
            for outer, inner in (pair, pair[::-1]):
                error = float(np.mean(squared[folds[held] == inner]))
                errors.setdefault((int(outer), penalty), []).append(error)
    return {key: float(np.mean(values)) for key, values in errors.items() if len(values) == len(names) - 1}


def cdf_thresholds(X: Array, n: int = 25) -> Array:
    """Thresholds within three standard deviations of the projections of typical samples on N(0, I/d).

    Those of the paper spread over the largest projection there could be, where next to none fall.
    """
    rows = X.reshape(len(X), -1)
    deviation = float(np.median(np.linalg.norm(rows, axis=1))) / np.sqrt(rows.shape[1])
    return np.linspace(-3, 3, n) * deviation


class Products:
    """Gram matrix of the training images, products with the test images, and norms, made when asked for."""

    def __init__(self, X: Any, test_X: Any, transformer: Any, kernel: Any) -> None:
        self.X, self.test_X, self.transformer, self.kernel = X, test_X, transformer, kernel
        self.made: tuple[Any, Any, Any] | None = None

    def __call__(self) -> tuple[Any, Any, Any]:
        """Give the three."""
        if self.made is None:
            if self.transformer is None:
                rows, test_rows = (images.reshape(len(images), -1) for images in (self.X, self.test_X))
                self.made = self.kernel(rows), self.kernel(test_rows, rows), np.ones(len(test_rows))
            else:
                features = self.transformer.fit_transform(self.X)
                test_features = self.transformer.transform(self.test_X)
                norms = np.einsum("ij,ij->i", test_features, test_features, dtype=np.float64)
                self.made = (
                    gram(features, dtype=np.float32),
                    gram(test_features, features, dtype=np.float32),
                    norms,
                )
        return self.made


def classify(made: Products, y: Any, test_y: Any, layers: int, n_held: int) -> dict[str, Any]:
    """Accuracy with the penalty, and the width of the second layer, that did best on held-out images.

    They are chosen on the last `n_held` training images by models of at most `MOST_CHOOSING` others; then all
    training images train the classifier.
    """
    products, cross, test_norms = made()
    targets = np.where(y[:, None] == np.arange(10), 1.0, -1.0)
    norms = np.diag(products)
    median = float(np.median(norms[:1000, None] + norms[:1000] - 2 * products[:1000, :1000]))
    kept = slice(min(len(y) - n_held, MOST_CHOOSING))
    best = (-1.0, None, 0.0)
    for second in (None,) if layers == 1 else SECOND_WIDTHS:
        gamma = None if second is None else 1 / (second * median)
        whole = products if gamma is None else gaussian_of(products, norms, norms, gamma)
        for penalty, scores in predictions(
            whole[kept, kept], whole[-n_held:, kept], targets[kept], PENALTIES
        ):
            right = float(np.mean(scores.argmax(axis=1) == y[-n_held:]))
            best = max(best, (right, gamma, penalty), key=lambda found: found[0])
    held_out, gamma, penalty = best
    if gamma is not None:
        products = gaussian_of(products, norms, norms, gamma)
        cross = gaussian_of(cross, test_norms, norms, gamma)
    [(_, scores)] = predictions(products, cross, targets, [penalty])
    return accuracy(scores.argmax(axis=1), test_y) | {
        "penalty": penalty,
        "second_gamma": gamma,
        "held_out": 100 * held_out,
    }
