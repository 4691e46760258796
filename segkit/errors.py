"""The errors a user meets, what was given, what is needed, the cure, and how messages are worded.

Every one derives from `SegkitError`. The command line prints its message in one line and exits
with status 2; a notebook shows it as any other exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

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


class SegkitError(Exception):
    """Base of every error segkit raises on purpose.

    Parameters
    ----------
    message : str
        What was given, what is needed, the cure.
    source : str or Path, optional
        The file, or place in it, that a caller must not name again: the message then begins with it.
    """

    def __init__(self, message: str = "", *, source: str | Path | None = None) -> None:
        super().__init__(one_line(str(message) if source is None else f"{source}: {message}"))
        self.reason = str(message)
        self.source = source


class InputError(SegkitError, ValueError):
    """Images, masks or arrays that segkit cannot work with."""


class ConfigError(SegkitError, ValueError):
    """An option, or a combination of options, that does not exist or does not fit."""


class WeightsError(SegkitError):
    """Network weights that are absent, cannot be downloaded, or do not fit the network."""


class ModelFileError(SegkitError):
    """A model file that is damaged, of another format version, or not a segkit model."""


class OutputError(SegkitError):
    """An output path that would overwrite something or cannot be written."""


class ClusterError(SegkitError):
    """Workers, or their scheduler, that do not answer or are lost."""
