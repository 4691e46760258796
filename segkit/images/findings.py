"""Faults of files, and notes on what is odd about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from segkit._common import first_few
from segkit.errors import InputError, SegkitError

Value = TypeVar("Value")


def list_faults(faults: Sequence[SegkitError], *, most: int = 10) -> str:
    """List faults in one line; files of which the same is wrong are named together."""
    sources: dict[str, list[str]] = {}
    for fault in faults:
        sources.setdefault(fault.reason, []).extend([] if fault.source is None else [str(fault.source)])
    lines = [f"{first_few(files)}: {reason}" if files else reason for reason, files in sources.items()]
    return first_few(lines, most=most, separator="; ")


@dataclass
class Findings:
    """Faults of files, and notes on what is odd about them, gathered so that one message names all."""

    faults: list[SegkitError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def attempt(self, read: Callable[..., Value], *arguments: object) -> Value | None:
        """Call a function; if it refuses its input, gather the fault and return None."""
        try:
            return read(*arguments)
        except InputError as fault:
            self.faults.append(fault)
            return None

    def add(self, other: Findings) -> None:
        """Gather what others have found."""
        self.faults += other.faults
        self.notes += other.notes

    def refuse(self, *, most: int = 10) -> None:
        """Raise one error of all faults, if there are any."""
        if self.faults:
            raise InputError(list_faults(self.faults, most=most))
