"""Helpers of every layer: checks of option values, types of arrays, of progress and of workers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.intp]
Item = TypeVar("Item")
Value = TypeVar("Value")
Progress = Callable[[Iterable[Any], str], Iterable[Any]]


class Workers(Protocol):
    """A callable that applies a function to items, here or elsewhere.

    It yields each item, in any order, with what returns the function's value or raises its error. Items are taken as
    they are needed. The function is sent elsewhere once, an item each time: both can be pickled.
    """

    def __call__(
        self, function: Callable[[Item], Value], items: Iterable[Item], /
    ) -> Generator[tuple[Item, Callable[[], Value]], None, None]: ...


def entries_under(entries: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Take the entries whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in entries.items() if name.startswith(prefix)}


def is_whole(value: Any, *, least: int = 1) -> bool:
    """Return whether a value is a whole number of at least `least`, of Python's or NumPy's types."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def pass_on(items: Iterable[Item], description: str) -> Iterator[Item]:  # noqa: ARG001
    """Pass items on and show nothing: the `Progress` of a caller that wants none."""
    yield from items


@dataclass(frozen=True)
class LocalProgress:
    """A progress that a copy in another process, which has no terminal, does not show."""

    progress: Progress
    prefix: str = ""

    def __call__(self, items: Iterable[Any], description: str) -> Iterable[Any]:
        return self.progress(items, self.prefix + description)

    def __reduce__(self) -> tuple[type[LocalProgress], tuple[Progress]]:
        return LocalProgress, (pass_on,)


def one_by_one(
    function: Callable[[Item], Value], items: Iterable[Item]
) -> Generator[tuple[Item, Callable[[], Value]], None, None]:
    """Apply a function to items here, one after the other: the `Workers` of a caller who wants no other."""
    for item in items:
        yield item, partial(function, item)
