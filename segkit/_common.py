"""Helpers of every layer: words, checks of option values, types of arrays and of progress."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
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


# Control characters but for tab and newline, marks that turn the order of writing, and halves of characters.
_UNPRINTABLE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Describe how many there are, such as "1 image" or "3 images"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def without_bytes(text: str) -> str:
    r"""Write bytes that are no text, which Linux allows in names, as escapes such as ``\xff``."""
    return re.sub("[\udc80-\udcff]", lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)


def printable(text: str) -> str:
    """Escape the control characters of a text, which a terminal would obey, and bytes that are no text."""
    return re.sub(_UNPRINTABLE, lambda found: found[0].encode("unicode_escape").decode(), without_bytes(text))


def one_line(text: str) -> str:
    """Escape the control characters of a text, those that end a line among them."""
    return printable(text).replace("\n", "\\n")


def first_few(items: Sequence[str], *, most: int = 10, separator: str = ", ") -> str:
    """Name the first items, each on one line whatever it is called, and count the others."""
    told = [one_line(item) for item in items[:most]]
    if len(items) > len(told):
        told.append(f"and {len(items) - len(told)} more")
    return separator.join(told)


def table(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Lay out names and values as lines of two aligned columns."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    return [f"  {name:<{width}}  {value}".rstrip() for name, value in rows]


def safe_cell(value: Any) -> Any:
    """Put a quote before text that a spreadsheet would execute as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


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
