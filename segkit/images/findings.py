"""Faults of files, and notes on what is odd about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from segkit.errors import InputError, SegkitError, first_few

Value = TypeVar("Value")


@dataclass
class Findings:
    """Faults of files, and notes on what is odd about them, gathered so that one message names all."""

    faults: list[SegkitError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def attempt(self, read: Callable[..., Value], *arguments: object, **options: object) -> Value | None:
        """Call a function; if it refuses its input, gather the fault and return None."""
        try:
            return read(*arguments, **options)
        except InputError as fault:
            self.faults.append(fault)
            return None

    def add(self, other: Findings) -> None:
        """Gather what others have found."""
        self.faults += other.faults
        self.notes += other.notes

    def refuse(self) -> None:
        """Raise one error of all faults, if there are any; files of which the same is wrong are named together."""
        if not self.faults:
            return
        if len(self.faults) == 1:
            raise self.faults[0]
        sources: dict[str, list[str]] = {}
        for fault in self.faults:
            sources.setdefault(fault.reason, []).extend([] if fault.source is None else [str(fault.source)])
        told = [f"{first_few(files)}: {reason}" if files else reason for reason, files in sources.items()]
        raise InputError(f"{len(self.faults)} faults: {first_few(told, separator='; ')}")
