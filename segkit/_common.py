"""What every layer may use: words, checks of option values, types of arrays and of progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
Item = TypeVar("Item")
Progress = Callable[[Iterable[Any], str], Iterable[Any]]


def count(number: int, noun: str) -> str:
    """Say how many there are, such as "1 image" or "3 images"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def is_whole(value: Any, *, least: int = 1) -> bool:
    """Tell whether a value is a whole number of at least `least`, of Python's or NumPy's types."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def pass_on(items: Iterable[Item], description: str) -> Iterator[Item]:  # noqa: ARG001
    """Pass items on and show nothing: the `Progress` of a caller that wants none."""
    yield from items
