"""Regularised least squares: penalties by leave-one-out, and settings of kernels chosen in nested folds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import svds
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifierCV
from sklearn.preprocessing import KernelCenterer
from sklearn.utils import gen_batches

from segkit.kernels import Gaussian, NystroemFeatures, RandomFourierFeatures

Array = Any
# (predictions, targets) -> the loss of each row.
Loss = Callable[[Array, Array], Array]

# Relative to the largest eigenvalue of the inner products.
PENALTIES = np.logspace(-9, 0, 19)
# Models that choose settings learn from this share of the samples outside two folds.
CHOOSING = 1 / 2
# Bandwidth where none is chosen, for `Grams` that know one only.
WIDTH = 1.0


def least_squares(X: Array, y: Array) -> RidgeClassifierCV:
    """Fit targets +-1 for each class without intercept, with the penalty of the least leave-one-out error."""
    rows = np.asarray(X, dtype=np.float64)
    largest = float(svds(rows, k=1, return_singular_vectors=False, v0=np.ones(min(rows.shape)))[0]) ** 2
    return RidgeClassifierCV(PENALTIES * largest, fit_intercept=False).fit(rows, y)


def gram(features: Array, others: Array | None = None, dtype: Any = np.float64) -> Array:
    """Inner products of float32 features, summed in float64 over blocks of columns.

    Products within a block are made in `dtype`: float32 is twice as fast, float64 serves penalties below the rounding of
    float32.
    """
    total = np.zeros((len(features), len(features if others is None else others)))
    for part in gen_batches(features.shape[1], 1024):
        left = features[:, part].astype(dtype)
        total += left @ (left if others is None else others[:, part].astype(dtype)).T
    return total


def gaussian_of(products: Array, left: Array, right: Array, gamma: float) -> Array:
    """Gaussian kernel of rows given by their inner products and squared norms: the second layer, exact."""
    return np.exp(-gamma * np.maximum(left[:, None] + right - 2 * products, 0))


def predictions(
    products: Array, cross: Array, targets: Array, penalties: Sequence[float]
) -> Iterator[tuple[float, Array]]:
    """Predict the rows of `cross`, their inner products with the training rows, at each penalty, with free intercept."""
    centre = KernelCenterer().fit(products)
    centred, cross, mean = centre.transform(products), centre.transform(cross), targets.mean(axis=0)
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


def wrong(predicted: Array, targets: Array) -> Array:
    """Whether each row gets another class than its own, by the largest of the predictions for each class."""
    return (predicted.argmax(axis=1) != targets.argmax(axis=1)).astype(float)


@dataclass(frozen=True)
class Axis:
    """Values of one setting, ``start * step**k`` for whole k from -n_steps to n_steps."""

    start: float
    step: float
    n_steps: int = 6

    def value(self, k: int) -> float:
        """Compute the value of index k, without the rounding errors of repeated products."""
        return float(f"{self.start * self.step**k:.6g}")


class Search:
    """Search for the settings of least error on grids that grow until the least one has neighbours on both sides.

    The last setting is searched for each value of those before it, and so on. A neighbour is preferred if its error is
    lower by more than `tolerance`, relatively: wide kernels with small penalties may do equally well without end.
    ``errors(settings, values)`` is, for values of the last setting, {(fold, value): error}; missing ones are infinite.
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
        """Choose the settings for one fold; also the least and largest value tried of each, and which lie on an edge."""
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


@dataclass(frozen=True)
class Folds:
    """Targets (n,) or (n, n_targets), folds, and whether a sample trains the models that choose settings."""

    targets: Array
    folds: Array
    learning: Array
    loss: Loss = squared

    @classmethod
    def drawn(cls, targets: Array, folds: Array, loss: Loss = squared) -> Folds:
        """Draw the samples that inner models learn from."""
        learning = np.zeros(len(targets), dtype=bool)
        learning[np.random.default_rng(0).permutation(len(targets))[: round(CHOOSING * len(targets))]] = True
        return cls(targets, folds, learning, loss)

    def inner(self, products: Array, penalties: Sequence[float]) -> dict[Any, float]:
        """Mean losses of inner cross-validation: {(outer fold, penalty): mean over the other folds}.

        The learning rows outside two folds train one model, which decides for either fold by its error on the other.
        """
        errors: dict[Any, list[float]] = {}
        names = np.unique(self.folds)
        for pair in combinations(names, 2):
            held = np.isin(self.folds, pair)
            known = ~held & self.learning
            for penalty, predicted in self._predictions(products, known, held, penalties):
                losses = self.loss(predicted, self.targets[held])
                for outer, inner in (pair, pair[::-1]):
                    error = float(np.mean(losses[self.folds[held] == inner]))
                    errors.setdefault((int(outer), penalty), []).append(error)
        # a penalty that one of the models failed at has no error
        return {
            key: float(np.mean(values)) for key, values in errors.items() if len(values) == len(names) - 1
        }

    def outer(self, products: Array, fold: int, penalty: float) -> Array:
        """Losses on a fold of a model of all samples of the others."""
        held = self.folds == fold
        [(_, predicted)] = self._predictions(products, ~held, held, [penalty])
        return self.loss(predicted, self.targets[held])

    def means(self, losses: Array) -> list[float]:
        """Mean loss of each fold."""
        return [float(losses[self.folds == fold].mean()) for fold in np.unique(self.folds)]

    def _predictions(
        self, products: Array, known: Array, held: Array, penalties: Sequence[float]
    ) -> Iterator[tuple[float, Array]]:
        return predictions(
            products[np.ix_(known, known)], products[np.ix_(held, known)], self.targets[known], penalties
        )


class Grams:
    """Features and Gram matrices of samples at each bandwidth, made when asked for.

    `kernel` makes the kernel of a bandwidth, `make` the transformer of a kernel; None takes the kernel itself.
    """

    def __init__(
        self,
        X: Array,
        kernel: Callable[[float], Any],
        make: Callable[[Any], Any] | None = None,
        dtype: Any = np.float64,
    ) -> None:
        self.X, self.kernel, self.make, self.dtype = X, kernel, make, dtype
        self._made: dict[float, Array] = {}
        self._features: dict[float, Array] = {}

    def __getitem__(self, width: float) -> Array:
        if width not in self._made:
            start = time.perf_counter()
            if self.make is None:
                self._made[width] = self.kernel(width)(self.X.reshape(len(self.X), -1).astype(np.float64))
            else:
                self._made[width] = gram(self.features(width), dtype=self.dtype)
            print(f"  bandwidth {width:g} ({time.perf_counter() - start:.0f} s)", flush=True)
        return self._made[width]

    def features(self, width: float) -> Array:
        """Features at a bandwidth; those of the last two are kept."""
        assert self.make is not None
        if width not in self._features:
            kept = list(self._features.items())[-1:]
            self._features = dict(kept) | {width: self.make(self.kernel(width)).fit_transform(self.X)}
        return self._features[width]


def nested(grams: Grams, data: Folds, axes: dict[str, Axis]) -> tuple[dict[int, Any], Array]:
    """Choose settings for each fold by the others, and find the losses of all samples with them."""

    def errors(settings: dict[str, float], penalties: list[float]) -> dict[tuple[Any, float], float]:
        products = layer(grams[settings.get("width", WIDTH)], settings.get("second_width"))
        return data.inner(products, penalties)

    search = Search(axes, errors)
    chosen = {int(fold): search.choose(int(fold)) for fold in np.unique(data.folds)}
    made: dict[Any, Array] = {}
    losses = np.zeros(len(data.targets))
    for fold, settings in chosen.items():
        key = widths_of(settings)
        if key not in made:
            made = {key: layer(grams[key[0]], key[1])}
        losses[data.folds == fold] = data.outer(made[key], fold, settings["penalty"])
    return chosen, losses


def approached(
    grams: Grams, data: Folds, chosen: dict[Any, Any], second: Any, penalty: Axis
) -> tuple[dict[int, Any], Array]:
    """As `nested`, with features of the second layer instead of its kernel.

    Bandwidths are those that the kernel chose (keys of rows read from a file are text); penalties are chosen anew.
    """
    losses, found = np.zeros(len(data.targets)), {}
    for widths in sorted({widths_of(one) for one in chosen.values()}):
        kernel = Gaussian(second_gamma(grams[widths[0]], widths[1]))
        products = second_gram(second, kernel, grams.features(widths[0]), grams.dtype)

        def errors(
            _: Any, penalties: list[float], products: Array = products
        ) -> dict[tuple[Any, float], float]:
            return data.inner(products, penalties)

        search = Search({"penalty": penalty}, errors)
        for fold, settings in chosen.items():
            if widths_of(settings) == widths:
                own = search.choose(int(fold))
                found[int(fold)] = {"second_width": widths[1]} | own | {"width": widths[0]}
                losses[data.folds == int(fold)] = data.outer(products, int(fold), own["penalty"])
    return found, losses


def widths_of(settings: dict[str, Any]) -> tuple[float, float | None]:
    """Bandwidths of both layers."""
    return settings.get("width", WIDTH), settings.get("second_width")


def layer(products: Array, second: float | None) -> Array:
    """Take the Gram matrix itself, or that of the Gaussian kernel on top."""
    if second is None:
        return products
    norms = np.diag(products)
    return gaussian_of(products, norms, norms, second_gamma(products, second))


def second_gamma(products: Array, second: float) -> float:
    """Inverse squared bandwidth of the second layer, from one relative to the median squared distance."""
    norms = np.diag(products)
    median = np.median(norms[:1000, None] + norms[:1000] - 2 * products[:1000, :1000])
    return float(1 / (second * median))


def second_gram(second: Any, kernel: Gaussian, features: Array, dtype: Any = np.float64) -> Array:
    """Inner products of features of the second layer."""
    if isinstance(second, NystroemFeatures):
        # Precision cuts the rank: in float32 a smooth kernel keeps few landmarks, however many there are.
        features = features.astype(np.float64)
    return gram(clone(second).set_params(kernel=kernel).fit_transform(features), dtype=dtype)


def second_layers(n_pairs: int, n_landmarks: int) -> dict[str, Any]:
    """Name the transformers that approach a Gaussian kernel of the features of the first layer."""
    return {
        f"{n_pairs:,} random Fourier pairs": RandomFourierFeatures(n_components=2 * n_pairs, random_state=0),
        f"{n_landmarks:,} Nystroem landmarks": NystroemFeatures(n_components=n_landmarks, random_state=0),
    }
