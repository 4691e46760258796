"""Conformal margins: how far an estimate may be off, from errors of estimates whose truth is known."""

from __future__ import annotations

from math import floor

import numpy as np
from numpy.typing import ArrayLike

# (n + 1) * level is rounded to so many digits, so that 10 * 0.9 is 9.
_DIGITS = 9


def conformal_margin(errors: ArrayLike, level: float) -> float | None:
    r"""Return the margin that holds the error of one more estimate, with a given probability."""
    ordered = np.sort(np.asarray(errors, dtype=np.float64))
    place = round((ordered.size + 1) * level, _DIGITS)
    if not 1 <= place <= ordered.size:
        return None
    below = floor(place)
    above = min(below + 1, ordered.size)
    return float(ordered[below - 1] + (place - below) * (ordered[above - 1] - ordered[below - 1]))
