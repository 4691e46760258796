"""Regularised least squares from a Gram matrix, with its settings chosen on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils import gen_batches

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
    if others is None:
        return _symmetric_gram(features, block, dtype)
    total = np.zeros((len(features), len(others)))
    for part in gen_batches(features.shape[1], block):
        total += features[:, part].astype(dtype) @ others[:, part].astype(dtype).T
    return total


def _symmetric_gram(features: Array, block: int, dtype: Any) -> Array:
    """Inner products of features with themselves: those below the diagonal are copied to above it."""
    total = np.zeros((len(features), len(features)))
    bands = list(gen_batches(len(features), max(block, len(features) // 8)))
    for part in gen_batches(features.shape[1], block):
        columns = features[:, part].astype(dtype)
        for band in bands:
            total[band, : band.stop] += columns[band] @ columns[: band.stop].T
    for band in bands:
        total[: band.start, band] = total[band, : band.start].T
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


def squared(predicted: Array, targets: Array) -> Array:
    """Squared error of each row of a single target."""
    return (predicted - targets) ** 2


def inner_errors(
    products: Array,
    targets: Array,
    folds: Array,
    penalties: Sequence[float],
    *,
    learning: Array | None = None,
    loss: Callable[[Array, Array], Array] = squared,
) -> dict[Any, float]:
    """Mean losses of inner cross-validation: {(outer fold, penalty): mean over the other folds}.

    The rows outside two folds train one model, which judges for either fold by its error on the other; of these rows
    only those of `learning`, if it is given.
    """
    errors: dict[Any, list[float]] = {}
    names = np.unique(folds)
    for pair in combinations(names, 2):
        held = np.isin(folds, pair)
        known = ~held if learning is None else ~held & learning
        found = predictions(
            products[np.ix_(known, known)], products[np.ix_(held, known)], targets[known], penalties
        )
        for penalty, predicted in found:
            losses = loss(predicted, targets[held])
            for outer, inner in (pair, pair[::-1]):
                error = float(np.mean(losses[folds[held] == inner]))
                errors.setdefault((int(outer), penalty), []).append(error)
    return {key: float(np.mean(values)) for key, values in errors.items() if len(values) == len(names) - 1}


@dataclass(frozen=True)
class Axis:
    """Values of one setting, ``start * step**k`` for whole k from -n_steps to n_steps."""

    start: float
    step: float
    n_steps: int = 6

    def value(self, k: int) -> float:
        """Give the value of index k, without the rounding errors of repeated products."""
        return float(f"{self.start * self.step**k:.6g}")


class Search:
    """Search for the settings of least error on grids that grow until the least one has neighbours on both sides.

    The last setting is searched for each value of those before it, and so on. A neighbour is preferred if its error is
    lower by more than `tolerance`, relatively: wide kernels with small penalties may do equally well without end.

    Parameters
    ----------
    axes : dict of str to Axis
        The settings, the slowest one to change first.
    errors : callable
        ``errors(settings, values)`` gives, for values of the last setting, the errors of each fold:
        {(fold, value): error}. Missing ones count as infinite.
    """

    def __init__(
        self,
        axes: dict[str, Axis],
        errors: Callable[[dict[str, float], list[float]], dict[tuple[Any, float], float]],
        tolerance: float = 0.01,
    ) -> None:
        self.axes, self.errors, self.tolerance = axes, errors, tolerance
        self._known: dict[tuple[Any, ...], dict[Any, float]] = {}

    def choose(self, fold: Any) -> dict[str, Any]:
        """Give the settings for one fold, the least and largest value tried of each, and which lie on an edge."""
        point = self._best(fold, (), (0,) * len(self.axes))
        known = [key for key, found in self._known.items() if fold in found]
        tried, edges = {}, []
        for place, (name, axis) in enumerate(self.axes.items()):
            tried[name] = [axis.value(choose(key[place] for key in known)) for choose in (min, max)]
            beside = {key[place] for key in known if key[:place] == point[:place]}
            if not {point[place] - 1, point[place] + 1} <= beside:
                edges.append(name)
        return {**self._settings(point), "tried": tried, "edges": edges}

    def _best(self, fold: Any, fixed: tuple[int, ...], start: tuple[int, ...]) -> tuple[int, ...]:
        """Walk along the next setting from its start; those after it start where its last value left them."""
        place = len(fixed)
        if place == len(self.axes):
            return fixed
        n_steps = list(self.axes.values())[place].n_steps
        found: dict[int, tuple[int, ...]] = {}

        def error(k: int, near: tuple[int, ...]) -> float:
            if abs(k) > n_steps:
                return np.inf
            if k not in found:
                found[k] = self._best(fold, (*fixed, k), near)
            return self._error(fold, found[k])

        here = start[place]
        error(here, start)
        while True:
            near = found[here]
            least = self._error(fold, near)
            beside = min((here - 1, here + 1), key=lambda k: error(k, near))
            if not error(beside, near) < (1 - self.tolerance) * least:
                return near
            here = beside

    def _error(self, fold: Any, point: tuple[int, ...]) -> float:
        if point not in self._known:
            name, axis = list(self.axes.items())[-1]
            # Both neighbours will be asked for too, and several penalties share the work on a matrix.
            near = [(*point[:-1], k) for k in range(point[-1] - 1, point[-1] + 2) if abs(k) <= axis.n_steps]
            new = [other for other in near if other not in self._known]
            settings = self._settings(point)
            del settings[name]
            errors = self.errors(settings, [axis.value(other[-1]) for other in new])
            for other in new:
                value = axis.value(other[-1])
                self._known[other] = {key[0]: error for key, error in errors.items() if key[1] == value}
        return self._known[point].get(fold, np.inf)

    def _settings(self, point: tuple[int, ...]) -> dict[str, float]:
        return {name: axis.value(k) for (name, axis), k in zip(self.axes.items(), point, strict=True)}


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
