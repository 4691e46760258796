"""A sum of mixtures of kernels, each of some of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.errors import ConfigError, ModelFileError
from segkit.kernels.base import FloatArray
from segkit.kernels.linear import LinearMixture
from segkit.kernels.linear_gaussian import LinearGaussianMixture
from segkit.kernels.mixture import MixtureRFF
from segkit.kernels.protocol import KernelMixture

IntArray = NDArray[np.intp]

# Kinds of mixtures by their names in model files.
MIXTURES: dict[str, type[KernelMixture]] = {
    "linear": LinearMixture,
    "linear+gaussian": LinearGaussianMixture,
    "mixture": MixtureRFF,
}


class SummedMixtures:
    r"""Features of a sum of fitted mixtures, each of its own columns: their features side by side.

    Parameters
    ----------
    mixtures : sequence of KernelMixture
        Fitted, at least one.
    columns : sequence of ndarray of int
        Columns of each mixture, rising. Every column belongs to at least one mixture.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns.

    Notes
    -----
    With the columns :math:`S_j` of mixture j, ``<z(x), z(y)>`` is :math:`\sum_j k_j(x_{S_j}, y_{S_j})`. A function of the
    features is a sum of one function for each mixture.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels import LinearMixture, SummedMixtures
    >>> X = np.array([[0.0, 1.0], [0.0, -1.0], [2.0, 1.0], [2.0, -1.0]])
    >>> mixture = LinearMixture().fit(X[:, [0]], [0, 0, 1, 1])
    >>> SummedMixtures([mixture, mixture], [np.array([0]), np.array([1])]).transform(X)
    array([[ 0.,  1.],
           [ 0., -1.],
           [ 2.,  1.],
           [ 2., -1.]])
    """

    def __init__(self, mixtures: Sequence[KernelMixture], columns: Sequence[IntArray]) -> None:
        if not len(mixtures):
            raise ConfigError("no mixtures: give one at least")
        self.mixtures = tuple(mixtures)
        self.columns = tuple(np.asarray(own, dtype=np.intp) for own in columns)
        self.criterion = self.mixtures[0].criterion
        self.n_features_in_ = np.unique(np.concatenate(self.columns)).size
        if not self._fits_together():
            raise ConfigError(
                f"columns of {len(self.columns)} mixtures: give each mixture as many as it was fitted on, rising, and "
                "every column to one at least"
            )
        sizes = [
            mixture.transform(np.zeros((1, own.size), dtype=np.float32)).shape[1]
            for mixture, own in zip(self.mixtures, self.columns, strict=True)
        ]
        self._ends = np.cumsum(sizes)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map rows to the features of all mixtures; (n_samples, n_features) -> (n_samples, n_features_out)."""
        rows = np.asarray(X)
        return np.hstack(
            [
                mixture.transform(rows[:, own])
                for mixture, own in zip(self.mixtures, self.columns, strict=True)
            ]
        )

    def dot(self, X: ArrayLike, coef: NDArray[Any]) -> FloatArray:
        """Compute ``transform(X) @ coef.T``."""
        rows = np.asarray(X)
        return np.asarray(
            sum(mixture.dot(rows[:, own], part) for mixture, own, part in self._with_coef(coef))
        )

    def linear_coef(self, coef: NDArray[Any]) -> NDArray[np.float32] | None:
        """Express the linear part of functions of the features by the columns; None if no mixture has one."""
        found = [(own, mixture.linear_coef(part)) for mixture, own, part in self._with_coef(coef)]
        if all(linear is None for _, linear in found):
            return None
        total = np.zeros((len(coef), self.n_features_in_), dtype=np.float32)
        for own, linear in found:
            if linear is not None:
                total[:, own] += linear
        return total

    @property
    def nonlinear_columns(self) -> IntArray:
        """Columns of the nonlinear part of any mixture, rising."""
        return np.unique(np.concatenate(self._nonlinear)).astype(np.intp)

    def nonlinear_dot(self, X: FloatArray, coef: NDArray[Any]) -> FloatArray:
        """Compute the nonlinear part; (n_samples, n_nonlinear_columns) -> (n_samples, n_functions)."""
        known = self.nonlinear_columns
        total = np.zeros((len(X), len(coef)), dtype=X.dtype)
        for (mixture, _, part), own in zip(self._with_coef(coef), self._nonlinear, strict=True):
            if own.size:
                total += mixture.nonlinear_dot(X[:, np.searchsorted(known, own)], part)
        return total

    def nonlinear_input(self, X: FloatArray) -> FloatArray:
        """Place the inputs of all mixtures side by side, scaled so that squared distances are the mixtures' mean."""
        inputs = [
            mixture.nonlinear_input(X[:, own])
            for mixture, own in zip(self.mixtures, self.columns, strict=True)
        ]
        return np.asarray(np.hstack(inputs) / np.sqrt(len(inputs), dtype=X.dtype))

    def describe(self, groups: Sequence[str]) -> list[dict[str, Any]]:
        """List kind, name, gamma, weight and score of the kernels.

        A weight is the mean over all mixtures, 0 where one lacks the kernel. A score is the mean over those that have it.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for mixture, own in zip(self.mixtures, self.columns, strict=True):
            for kernel in mixture.describe([groups[column] for column in own]):
                found.setdefault(kernel["name"], []).append(kernel)
        described = [
            same[0]
            | {
                "weight": sum(kernel["weight"] for kernel in same) / len(self.mixtures),
                "score": sum(kernel["score"] for kernel in same) / len(same),
            }
            for same in found.values()
        ]
        return sorted(described, key=lambda kernel: (kernel["kind"] != "linear", -kernel["weight"]))

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Split the mixtures into a header and arrays; see `MixtureRFF.to_state`."""
        headers: list[dict[str, Any]] = []
        arrays: dict[str, NDArray[Any]] = {}
        for place, (mixture, own) in enumerate(zip(self.mixtures, self.columns, strict=True)):
            header, of_mixture = mixture.to_state()
            headers.append(
                {"kind": next(kind for kind, known in MIXTURES.items() if type(mixture) is known), **header}
            )
            arrays |= {f"{place}.{name}": array for name, array in of_mixture.items()}
            arrays[f"{place}.of.columns"] = own.astype(np.int64)
        return {"mixtures": headers}, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the sum from the result of `to_state`."""
        try:
            mixtures, columns = [], []
            for place, own in enumerate(header["mixtures"]):
                part = {
                    name.removeprefix(f"{place}."): array
                    for name, array in arrays.items()
                    if name.startswith(f"{place}.")
                }
                columns.append(part.pop("of.columns"))
                mixtures.append(MIXTURES[own["kind"]].from_state(own, part))
            return cls(mixtures, columns)
        except ConfigError as error:
            raise ModelFileError(f"{error}; copy the file again") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(
                f"state of SummedMixtures is damaged or of another version: {error}"
            ) from error

    @property
    def _nonlinear(self) -> list[IntArray]:
        return [
            own[mixture.nonlinear_columns] for mixture, own in zip(self.mixtures, self.columns, strict=True)
        ]

    def _with_coef(self, coef: NDArray[Any]) -> list[tuple[KernelMixture, IntArray, NDArray[Any]]]:
        """Return each mixture with its columns and its part of the coefficients."""
        parts = np.split(coef, self._ends[:-1], axis=1)
        return list(zip(self.mixtures, self.columns, parts, strict=True))

    def _fits_together(self) -> bool:
        """Return whether the columns fit the mixtures and leave none out."""
        own = list(zip(self.mixtures, self.columns, strict=False))
        seen = np.unique(np.concatenate(self.columns))
        return bool(
            len(self.mixtures) == len(self.columns)
            and all(columns.ndim == 1 and columns.size == mixture.n_features_in_ for mixture, columns in own)
            and all((np.diff(columns) > 0).all() for columns in self.columns)
            and np.array_equal(seen, np.arange(seen.size))
        )
