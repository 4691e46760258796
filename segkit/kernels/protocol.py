"""What a learnt mixture of kernels offers to those who classify pixels with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.kernels.base import FloatArray


class KernelMixture(Protocol):
    """Weighted kernels and their features, part of them linear in some columns, the rest a function of others.

    What is linear may be summed on coarse grids and interpolated then; the rest may not.
    """

    criterion: Any

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map rows to features; (n_samples, n_features) -> (n_samples, n_features_out)."""
        ...

    def dot(self, X: ArrayLike, coef: NDArray[Any]) -> FloatArray:
        """Compute ``transform(X) @ coef.T``."""
        ...

    def linear_coef(self, coef: NDArray[Any]) -> NDArray[np.float32] | None:
        """Give the linear part of functions of the features as functions of the columns, if there is one.

        (n_functions, n_features_out) -> (n_functions, n_features).
        """
        ...

    @property
    def nonlinear_columns(self) -> NDArray[np.intp]:
        """Columns that the rest depends on, rising."""
        ...

    def nonlinear_dot(self, X: FloatArray, coef: NDArray[Any]) -> FloatArray:
        """Compute the rest from those columns; (n_samples, n_nonlinear_columns) -> (n_samples, n_functions)."""
        ...

    def nonlinear_input(self, X: FloatArray) -> FloatArray:
        """Select and scale columns to those between which its radial kernels measure distances."""
        ...

    def describe(self, groups: Sequence[str]) -> list[dict[str, Any]]:
        """Kind, name, gamma, weight and score of each kernel."""
        ...

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Take the fitted transformer apart for a file without pickle."""
        ...

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted transformer from what `to_state` returned."""
        ...
