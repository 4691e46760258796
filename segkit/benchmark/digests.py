"""Digests of the files that affect the scores of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from segkit.benchmark.methods import Method
from segkit.images import pair


def digest_weights(method: Method) -> list[str]:
    """Compute the hexadecimal sha256 of each weight file of a method; downloads never change and are left out."""
    return [
        hashlib.sha256(Path(source).read_bytes()).hexdigest()
        for source in _weights_in(method.to_dict()["config"])
        if Path(source).is_file()
    ]


def _weights_in(options: Any) -> Iterator[str]:
    """Yield the values of all keys ``weights``, at any depth, in order."""
    if isinstance(options, dict):
        if isinstance(options.get("weights"), str):
            yield options["weights"]
        options = list(options.values())
    if isinstance(options, list):
        for part in options:
            yield from _weights_in(part)


def digest_files(images: Path, masks: Path) -> str:
    """Compute the hexadecimal sha256 of the image and mask files, in order of stem."""
    sha = hashlib.sha256()
    for entry in pair(images, masks):
        for path in (entry.image, entry.mask):
            sha.update(entry.stem.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()
