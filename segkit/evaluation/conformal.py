"""Conformal margins: how far an estimate may be off, from errors of estimates whose truth is known."""

from __future__ import annotations

from math import floor

import numpy as np
from numpy.typing import ArrayLike

# (n + 1) * level is rounded to so many digits, so that 10 * 0.9 is 9.
_DIGITS = 9


def conformal_margin(errors: ArrayLike, level: float) -> float | None:
    r"""Give the margin that holds the error of one more estimate, with a given probability.

    Parameters
    ----------
    errors : array-like of shape (n,)
        Absolute errors of estimates whose truth is known.
    level : float
        The probability, between 0 and 1.

    Returns
    -------
    float or None
        The k-th smallest error for k = (n + 1) `level`, interpolated if k is no whole number. None if n errors are too few:
        80 % takes 4, 90 % takes 9.

    Notes
    -----
    If the n errors and the next one are exchangeable, the next one is at most the k-th smallest with probability at
    least :math:`k / (n + 1)`, whatever their distribution. The probability is exactly that if no two are equal (Vovk et
    al.). Between two such steps, the margin is interpolated. The coverage is then off by an order of :math:`1 / n^2`,
    for a smooth distribution (Beran and Hall). The next larger error instead would give too wide a margin: with 15
    errors, the one for 90 % covers 93.75 %.

    References
    ----------
    V. Vovk, A. Gammerman, G. Shafer, Algorithmic learning in a random world, 2005.

    R. Beran, P. Hall, Interpolated nonparametric prediction intervals and confidence intervals, Journal of the Royal
    Statistical Society B 55, 1993.

    Examples
    --------
    >>> from segkit.evaluation.conformal import conformal_margin
    >>> conformal_margin([0.3, 0.1, 0.2, 0.4], 0.8)
    0.4
    >>> conformal_margin([0.3, 0.1, 0.2], 0.8) is None
    True
    """
    ordered = np.sort(np.asarray(errors, dtype=np.float64))
    place = round((ordered.size + 1) * level, _DIGITS)
    if not 1 <= place <= ordered.size:
        return None
    below = floor(place)
    above = min(below + 1, ordered.size)
    return float(ordered[below - 1] + (place - below) * (ordered[above - 1] - ordered[below - 1]))
