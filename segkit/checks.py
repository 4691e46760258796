"""Checks of option values that several layers share."""

from __future__ import annotations

from numbers import Integral
from typing import Any


def is_whole(value: Any, *, least: int = 1) -> bool:
    """Tell whether a value is a whole number of at least `least`, of Python's or NumPy's types."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least
