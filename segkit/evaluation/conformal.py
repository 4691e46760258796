"""Conformal margins: how far an estimate may be off, from errors of estimates whose truth is known."""

from __future__ import annotations

from math import floor

import numpy as np
from numpy.typing import ArrayLike

# (n + 1) * level is rounded to so many digits, so that 10 * 0.9 is 9.
_DIGITS = 9


def conformal_margin(errors: ArrayLike, level: float) -> float | None:
    """Return the margin that holds the error of one more estimate with probability `level`; None if errors are too few.

    It is the k-th smallest of n absolute errors, k = (n + 1) level: if they and the next are exchangeable, the next is at
    most that with probability k / (n + 1) or more, whatever their distribution (Vovk et al., 2005). Between two k it is
    interpolated, which errs by an order of 1 / n^2 for a smooth distribution (Beran and Hall, 1993).

    >>> conformal_margin([0.3, 0.1, 0.2, 0.4], 0.8)
    0.4
    """
    ordered = np.sort(np.asarray(errors, dtype=np.float64))
    place = round((ordered.size + 1) * level, _DIGITS)
    if not 1 <= place <= ordered.size:
        return None
    below = floor(place)
    above = min(below + 1, ordered.size)
    return float(ordered[below - 1] + (place - below) * (ordered[above - 1] - ordered[below - 1]))
