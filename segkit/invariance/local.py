"""Local polynomial kernels: products of neighbouring pixels first, of distant ones last.

A window sum of pixel products, raised to a power, compares two images near one place; sums of these
compare larger parts, and the sum over all places the whole images. One layer of squared window sums
is an inner product of second-order maps of each image, which move with the image: a Gram matrix is
then a few matrix products, and all circular shifts of one image are correlations of its maps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import find_objects, uniform_filter

from segkit.errors import ConfigError, InputError
from segkit.kernels.base import FloatArray, as_pair, as_samples, check_values

Float64Array = NDArray[np.float64]

# Matrix products of this many maps cost as much as window sums pair by pair, measured on 28 x 28 images.
_FEW_MAPS = 500


@dataclass(frozen=True)
class LocalPolynomialKernel:
    """Polynomial kernel of local correlations, over windows of one or more sizes.

    Parameters
    ----------
    windows : int or sequence of int, default=7
        Side of the windows in pixels, >= 1, one for each layer.
    degrees : sequence of int, default=(2, 4)
        Exponents, >= 1: one for each layer, then that of the sum over the whole image.
    normalization : {"paper", "reference"}, default="paper"
        "paper" takes sums over the windows inside the image. "reference" takes means over windows
        centred on each pixel, zeros beyond the edge, and divides the sum over the image by the root
        of its number of pixels, hence by the side of a square, as in the paper's experiments.

    Raises
    ------
    ConfigError
        If a parameter is out of its range, there is not one degree more than there are windows, or
        a window that must be centred has an even side.

    Notes
    -----
    Samples are signals (n, t) or grey images (n, H, W). With window sums over l and g, one and two layers are

        ``K(x, y) = [sum_l (sum_p x_p y_p + 1)^d1 + 1]^d2``
        ``K(x, y) = {sum_g [sum_l (sum_p x_p y_p + 1)^d1 + 1]^d2 + 1}^d3``

    and "reference" is ``[(H W)^-1/2 sum_l (k^-2 sum_p x_p y_p + 1)^d1 + 1]^d2``.

    For one layer and d1 = 2, expanding the square gives ``sum_l (sum_p x_p y_p + 1)^2 = n_windows +
    2 sum_p N_0(p) x_p y_p + sum_d sum_p N_d(p) (x_p x_{p+d}) (y_p y_{p+d})``, where N_d(p) counts the
    windows that hold both p and p + d. Displacements d and -d are the same pairs of pixels, so that
    half of them suffice: 85 for windows of 7 x 7.

    The paper counts the side of a window as k + 1, and a plus sign is missing in its eq. 6.

    References
    ----------
    T. Liu et al. 2022, eq. 5 and 6.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import LocalPolynomialKernel
    >>> signals = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> LocalPolynomialKernel(windows=2, degrees=(2, 1))(signals)
    array([[6., 3.],
           [3., 9.]])
    """

    windows: int | Sequence[int] = 7
    degrees: Sequence[int] = (2, 4)
    normalization: str = "paper"

    def __post_init__(self) -> None:
        windows, degrees = (tuple(np.atleast_1d(given).tolist()) for given in (self.windows, self.degrees))
        object.__setattr__(self, "windows", windows)
        object.__setattr__(self, "degrees", degrees)
        _check_positive_integers("windows", windows)
        _check_positive_integers("degrees", degrees)
        if len(degrees) != len(windows) + 1:
            raise ConfigError(
                f"windows={windows} and degrees={degrees}: give one degree for each window "
                f"and one for the sum over the image, such as degrees={(2,) * len(windows) + (4,)}"
            )
        if self.normalization not in ("paper", "reference"):
            raise ConfigError(f"normalization={self.normalization!r}: choose paper or reference")
        if self._is_centred and any(window % 2 == 0 for window in windows):
            raise ConfigError(
                f"windows={windows} with normalization='reference': a window centred on a pixel has an odd "
                f"side; take odd windows or normalization='paper'"
            )

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> FloatArray:
        """Compute kernel values between samples; (n, *shape), (m, *shape) -> (n, m)."""
        x, y = as_pair(X, Y)
        self._check(x)
        few_maps = self.has_maps and 2 + len(self._steps(x.ndim - 1)) <= _FEW_MAPS
        evaluate = self._map_products if few_maps else self._window_products
        return self.of_products(evaluate(x, None if Y is None else y).astype(x.dtype))

    def diagonal(self, X: ArrayLike) -> FloatArray:
        """Compute the kernel value of each sample with itself; (n, *shape) -> (n,)."""
        samples = self._check(as_samples(X))
        return self.of_products(self._sum_layers(samples * samples).astype(samples.dtype))

    @property
    def has_maps(self) -> bool:
        """Whether the kernel is a function of inner products of maps: one layer, first degree 2."""
        return len(self._windows) == 1 and self.degrees[0] == 2

    def left_maps(self, X: ArrayLike) -> FloatArray:
        """Compute the weighted maps of first arguments; (n, *shape) -> (n, n_maps, *shape).

        With `right_maps`, ``K(x, y) = of_products(sum(left_maps(x) * right_maps(y)))``, where the right maps may be
        shifted circularly in place of y. There are 87 for windows of 7 x 7. They are float32 if `X` is.
        """
        return np.stack([weight * values for weight, values in self._maps(X)], axis=1)

    def right_maps(self, X: ArrayLike) -> FloatArray:
        """Compute the maps of second arguments; (n, *shape) -> (n, n_maps, *shape)."""
        return np.stack([values for _, values in self._maps(X)], axis=1)

    def of_products(self, products: FloatArray) -> FloatArray:
        """Compute kernel values ``(products + 1)^d`` at inner products of maps, same shape and dtype.

        Inner products of maps of real samples are sums of squares, hence >= 0, where the kernel increases with them.
        """
        with np.errstate(over="ignore"):
            values = _power(products + 1, self.degrees[-1])
        check_values(values)
        return values

    @property
    def _windows(self) -> tuple[int, ...]:
        return self.windows  # type: ignore[return-value] # made so by __post_init__

    @property
    def _is_centred(self) -> bool:
        return self.normalization == "reference"

    def _check(self, X: FloatArray) -> FloatArray:
        """Check the shape of samples."""
        if X.ndim not in (2, 3):
            raise InputError(f"samples of shape {X.shape[1:]}: give signals (n, t) or grey images (n, H, W)")
        side, windows = min(X.shape[1:]), self._windows
        needed = max(windows) if self._is_centred else sum(windows) - len(windows) + 1
        if side < needed:
            raise InputError(
                f"samples of {side} pixels a side: windows={windows} need at least {needed}; take smaller windows"
            )
        return X

    def _window_products(self, X: FloatArray, Y: FloatArray | None) -> Float64Array:
        """Layers of window sums, one first argument at a time: memory of a few times the second ones."""
        if Y is not None:
            return np.stack([self._sum_layers(x * Y) for x in X])
        products = np.empty((len(X), len(X)))
        for i, x in enumerate(X):
            products[i, i:] = products[i:, i] = self._sum_layers(x * X[i:])
        return products

    def _sum_layers(self, values: FloatArray) -> Float64Array:
        """All but the last power, from products of pixels; (n, *shape) -> (n,)."""
        for window, degree in zip(self._windows, self.degrees, strict=False):
            values = _power(self._window_sums(values, window) + 1, degree)
        total: Float64Array = values.sum(axis=tuple(range(1, values.ndim)), dtype=np.float64)
        return total * self._image_factor(values.shape[1:])

    def _window_sums(self, values: FloatArray, window: int) -> FloatArray:
        """Sum over the windows inside, or average over the windows centred on each pixel; (n, *shape)."""
        shape = values.shape[1:]
        means: FloatArray = uniform_filter(values, (1, *[window] * len(shape)), mode="constant")
        if self._is_centred:
            return means
        inside = [slice(window // 2, window // 2 + size - window + 1) for size in shape]
        sums: FloatArray = window ** len(shape) * means[:, *inside]
        return sums

    def _image_factor(self, shape: Sequence[int]) -> float:
        """Factor of the sum over an image of that shape."""
        return 1 / math.sqrt(math.prod(shape)) if self._is_centred else 1.0

    def _map_products(self, X: FloatArray, Y: FloatArray | None) -> Float64Array:
        """Inner products of maps, one map at a time: memory of a few times the samples."""
        n = len(X)
        products = np.zeros((n, n if Y is None else len(Y)))
        for weight, values in self._maps(X if Y is None else np.concatenate([X, Y])):
            (box,) = find_objects((weight > 0).astype(np.intp))
            weighted = (values[:, *box] * np.sqrt(weight[box])).reshape(len(values), -1)
            # The product of a matrix with its own transpose takes half the time.
            products += weighted[:n] @ (weighted if Y is None else weighted[n:]).T
        return products

    def _maps(self, X: ArrayLike) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield weights (*shape) and maps (n, *shape): of 1, of pixels and of products of two."""
        if not self.has_maps:
            raise ConfigError(
                f"windows={self.windows}, degrees={self.degrees}: only a kernel of one window and first degree 2 "
                f"has maps; evaluate the kernel itself"
            )
        samples = self._check(as_samples(X))
        _, *shape = samples.shape
        (window,), origin = self._windows, (0,) * len(shape)
        reach, factor = window - 1, self._image_factor(shape)
        counts = [self._count_windows(size) for size in shape]
        per_pixel: float = window ** -len(shape) if self._is_centred else 1.0
        # The constant sits on one pixel, for float32 sums of many equal terms drift.
        constant = np.zeros(shape)
        constant[origin] = math.prod(shape if self._is_centred else (size - reach for size in shape))
        yield (factor * constant).astype(samples.dtype), np.ones_like(samples)
        yield (factor * 2 * per_pixel * _outer(counts, origin)).astype(samples.dtype), samples
        wrapped = np.pad(samples, [(0, 0), *[(reach, reach)] * len(shape)], mode="wrap")
        for step in self._steps(len(shape)):
            orders = 1 if step == origin else 2
            weight = factor * orders * per_pixel**2 * _outer(counts, step)
            moved = [slice(reach + d, reach + d + size) for d, size in zip(step, shape, strict=True)]
            yield weight.astype(samples.dtype), samples * wrapped[:, *moved]

    def _steps(self, n_axes: int) -> list[tuple[int, ...]]:
        """List the steps between unordered pairs of pixels in a window."""
        window = self._windows[0]
        steps = itertools.product(range(1 - window, window), repeat=n_axes)
        return [step for step in steps if step >= (0,) * n_axes]

    def _count_windows(self, size: int) -> dict[int, NDArray[np.intp]]:
        """Count along one axis the windows that hold pixels p and p + step; (size,) for each step."""
        window, first = self._windows[0], np.arange(size)
        padding = window // 2 if self._is_centred else 0
        counts = {}
        for step in range(1 - window, window):
            low, high = np.minimum(first, first + step), np.maximum(first, first + step)
            earliest = np.maximum(high - window + 1, -padding)
            latest = np.minimum(low, size + padding - window)
            inside = (low >= 0) & (high < size)
            counts[step] = np.where(inside, np.maximum(latest - earliest + 1, 0), 0)
        return counts


def _outer(counts: Sequence[dict[int, NDArray[np.intp]]], step: Sequence[int]) -> NDArray[np.intp]:
    """Multiply the counts along each axis; (*shape)."""
    return reduce(np.multiply.outer, (axis[d] for axis, d in zip(counts, step, strict=True)))


def _check_positive_integers(name: str, values: Sequence[Any]) -> None:
    if not values or not all(isinstance(value, int) and value >= 1 for value in values):
        raise ConfigError(f"{name}={values}: one or more integers >= 1 are needed")


def _power(values: FloatArray, degree: int) -> FloatArray:
    """Raise to an integer power by squaring, which is faster than NumPy's for exponents beyond 2."""
    if degree == 1:
        return values
    root = _power(values, degree // 2)
    square: FloatArray = root * root
    return square * values if degree % 2 else square
