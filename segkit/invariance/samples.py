"""Checks of samples (n, *shape) and of kernel values, for kernels and estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from segkit.errors import InputError
from segkit.kernels.base import FloatArray


def as_samples(X: ArrayLike) -> FloatArray:
    """Check the samples that a kernel compares; float32 stays, integers become it or float64."""
    samples = np.asarray(X)
    if samples.dtype.kind not in "buif":
        raise InputError(
            f"samples of dtype {samples.dtype}: a kernel compares real numbers; convert them to float"
        )
    if not samples.size:
        raise InputError(
            f"array of shape {samples.shape}: a kernel compares samples of at least one value; give one or more"
        )
    if not np.isfinite(samples).all():
        raise InputError(
            f"{np.count_nonzero(~np.isfinite(samples))} of {samples.size} values are NaN or infinite: replace "
            f"them or leave out their samples"
        )
    return samples.astype(np.result_type(samples, np.float32), copy=False)


def as_pair(X: ArrayLike, Y: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    """Check two arrays of samples of one shape; both get the dtype of the first, and None is the first."""
    left = as_samples(X)
    right = left if Y is None else as_samples(Y).astype(left.dtype, copy=False)
    if left.ndim < 2 or left.shape[1:] != right.shape[1:]:
        raise InputError(
            f"arrays of shapes {left.shape} and {right.shape}: a kernel compares samples of one shape; "
            f"pass (n, *shape) and (m, *shape)"
        )
    return left, right


def check_values(values: FloatArray) -> None:
    """Check kernel values of finite samples."""
    if not np.isfinite(values).all():
        raise InputError(
            f"kernel values exceed the largest {values.dtype} number: scale the samples to [0, 1] or "
            f"give them in float64"
        )


def validate_samples(estimator: Any, X: ArrayLike) -> FloatArray:
    """Check samples that a fitted estimator, with the attribute ``shape_in_``, is given."""
    check_is_fitted(estimator)
    shape = np.asarray(X).shape[1:]
    # scikit-learn itself refuses rows of another length
    if shape != estimator.shape_in_ and max(len(shape), len(estimator.shape_in_)) > 1:
        raise InputError(
            f"samples of shape {shape}: {type(estimator).__name__} was fitted on {estimator.shape_in_}; "
            f"resize or crop them alike"
        )
    samples: FloatArray = validate_data(
        estimator, X, dtype=[np.float64, np.float32], allow_nd=True, reset=False
    )
    return samples
