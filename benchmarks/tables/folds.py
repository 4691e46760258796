"""Kernels and features of one or two layers in five folds, their settings chosen for each fold on the other four."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from benchmarks.tables.ridge import Axis, Search, gaussian_of, gram, inner_errors, predictions, squared
from segkit.evaluation.statistics import student_interval
from segkit.kernels import Gaussian, NystroemFeatures, RandomFourierFeatures

Array = Any
# What an error measures: (predictions, targets) -> the loss of each row.
Loss = Callable[[Array, Array], Array]

# Models that choose settings learn from this share of the samples outside two folds.
CHOOSING = 1 / 2
# Bandwidth where none is chosen, for `Grams` that know one only.
WIDTH = 1.0


def wrong(predicted: Array, targets: Array) -> Array:
    """Tell which rows get another class than their own, by the largest of the predictions for each class."""
    return (predicted.argmax(axis=1) != targets.argmax(axis=1)).astype(float)


@dataclass(frozen=True)
class Folds:
    """Targets and folds of samples, those that models learn from which choose settings, and the loss.

    Parameters
    ----------
    targets : ndarray of shape (n,) or (n, n_targets)
        What to predict.
    folds : ndarray of shape (n,)
        Fold of each sample.
    learning : ndarray of shape (n,), bool
        Samples that inner models learn from; they are judged on all samples of a fold.
    loss : callable
        ``loss(predicted, targets)`` gives the loss of each row.
    """

    targets: Array
    folds: Array
    learning: Array
    loss: Loss = squared

    @classmethod
    def drawn(cls, targets: Array, folds: Array, loss: Loss = squared) -> Folds:
        """Draw the samples that inner models learn from."""
        learning = np.zeros(len(targets), dtype=bool)
        n_learning = round(CHOOSING * len(targets))
        learning[np.random.default_rng(0).permutation(len(targets))[:n_learning]] = True
        return cls(targets, folds, learning, loss)

    def inner(self, products: Array, penalties: Sequence[float]) -> dict[tuple[Any, float], float]:
        """Errors of inner cross-validation, from the Gram matrix of all samples."""
        return inner_errors(
            products, self.targets, self.folds, penalties, learning=self.learning, loss=self.loss
        )

    def outer(self, products: Array, fold: int, penalty: float) -> Array:
        """Losses on a fold of a model of all samples of the others."""
        held = self.folds == fold
        [(_, predicted)] = predictions(
            products[np.ix_(~held, ~held)], products[np.ix_(held, ~held)], self.targets[~held], [penalty]
        )
        return self.loss(predicted, self.targets[held])

    def means(self, losses: Array) -> list[float]:
        """Mean loss of each fold."""
        return [float(losses[self.folds == fold].mean()) for fold in np.unique(self.folds)]


class Grams:
    """Features and Gram matrices of one kind, at each bandwidth, made when asked for.

    Parameters
    ----------
    X : ndarray of shape (n, *shape)
        The samples.
    kernel : callable
        Gives the kernel of a bandwidth.
    make : callable or None
        Gives the transformer of a kernel; None takes the kernel itself.
    dtype : dtype, default=np.float64
        Of the inner products of features, as `gram` takes it.
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
    """Give the settings that the others chose for each fold, and the losses of all samples with them."""

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


def widths_of(settings: dict[str, Any]) -> tuple[float, float | None]:
    """Bandwidths of both layers."""
    return settings.get("width", WIDTH), settings.get("second_width")


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


def second_gram(second: Any, kernel: Gaussian, features: Array, dtype: Any = np.float64) -> Array:
    """Inner products of features of the second layer."""
    if isinstance(second, NystroemFeatures):
        # Precision cuts the rank: in float32 a smooth kernel keeps few landmarks, however many there are.
        features = features.astype(np.float64)
    return gram(clone(second).set_params(kernel=kernel).fit_transform(features), dtype=dtype)


def second_layers(n_pairs: int, n_landmarks: int) -> dict[str, Any]:
    """Give transformers that approach a Gaussian kernel of the features of the first layer, with their names."""
    return {
        f"{n_pairs:,} random Fourier pairs": RandomFourierFeatures(n_components=2 * n_pairs, random_state=0),
        f"{n_landmarks:,} Nystroem landmarks": NystroemFeatures(n_components=n_landmarks, random_state=0),
    }


def layer(products: Array, second: float | None) -> Array:
    """Give the Gram matrix itself, or that of the Gaussian kernel on top."""
    if second is None:
        return products
    norms = np.diag(products)
    return gaussian_of(products, norms, norms, second_gamma(products, second))


def second_gamma(products: Array, second: float) -> float:
    """Inverse squared bandwidth of the second layer, from one relative to the median squared distance."""
    norms = np.diag(products)
    median = np.median(norms[:1000, None] + norms[:1000] - 2 * products[:1000, :1000])
    return float(1 / (second * median))


def accuracy_by_fold(chosen: dict[int, Any], losses: Array, data: Folds) -> dict[str, Any]:
    """Percentage of right predictions, its mean over the folds and the interval of Student's t."""
    by_fold = [100 * (1 - share) for share in data.means(losses)]
    return {
        "value": float(np.mean(by_fold)),
        "interval": list(student_interval(by_fold)),
        "by_fold": by_fold,
        "chosen": chosen,
    }
