"""Words that messages and reports share."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Say how many there are, such as "1 image" or "3 images"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
