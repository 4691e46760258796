"""The interface of a learnt mixture of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.kernels.base import FloatArray


class KernelMixture(Protocol):
    """Weighted kernels with explicit features: a part that is linear in the columns, and a nonlinear part.

    The linear part may be summed on coarse grids and interpolated afterwards. The nonlinear part may not.
    """

    criterion: Any
    n_features_in_: int

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map rows to features; (n_samples, n_features) -> (n_samples, n_features_out)."""
        ...

    def dot(self, X: ArrayLike, coef: NDArray[Any]) -> FloatArray:
        """Compute ``transform(X) @ coef.T``."""
        ...

    def linear_coef(self, coef: NDArray[Any]) -> NDArray[np.float32] | None:
        """Express the linear part of functions of the features by the columns; None if there is no linear part.

        (n_functions, n_features_out) -> (n_functions, n_features).
        """
        ...

    @property
    def nonlinear_columns(self) -> NDArray[np.intp]:
        """Columns of the nonlinear part, in increasing order."""
        ...

    def nonlinear_dot(self, X: FloatArray, coef: NDArray[Any]) -> FloatArray:
        """Compute the nonlinear part; (n_samples, n_nonlinear_columns) -> (n_samples, n_functions)."""
        ...

    def nonlinear_input(self, X: FloatArray) -> FloatArray:
        """Select the columns of the radial kernels, and scale them as inside the kernels' distances."""
        ...

    def describe(self, groups: Sequence[str]) -> list[dict[str, Any]]:
        """List kind, name, gamma, weight and score of each kernel."""
        ...

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Split the fitted transformer into a JSON-able header and arrays, for files without pickle."""
        ...

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted transformer from the result of `to_state`."""
        ...
