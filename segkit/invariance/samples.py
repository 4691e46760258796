"""Checks of samples (n, *shape) and of kernel values, for kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

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
