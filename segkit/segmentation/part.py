"""A part of the images of a folder, for programs that share the work without knowing each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from segkit._common import is_whole
from segkit.errors import ConfigError

_MOST = 1_000_000


@dataclass(frozen=True)
class Part:
    """Part `number` of `total`."""

    number: int
    total: int

    def __post_init__(self) -> None:
        good = is_whole(self.number) and is_whole(self.total) and self.number <= self.total <= _MOST
        if not good:
            raise ConfigError(
                f"part {self}: expected a part from 1 on, of so many parts or more, such as 1/4 to 4/4"
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Read "2/4"."""
        found = re.fullmatch(r"(\d{1,7})/(\d{1,7})", text.strip(), re.ASCII)
        if found is None:
            raise ConfigError(f"part {text}: expected a part and the number of parts, such as 2/4")
        return cls(int(found[1]), int(found[2]))

    def of(self, images: Sequence[Path]) -> list[Path]:
        """Take every `total`-th image from the `number`-th on."""
        stems = sorted({image.with_suffix("") for image in images})
        mine = set(stems[self.number - 1 :: self.total])
        return [image for image in images if image.with_suffix("") in mine]
