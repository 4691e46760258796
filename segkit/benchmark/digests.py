"""Digests of the files that the scores of a run depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from segkit.benchmark.methods import Method
from segkit.images import pair


def digest_weights(method: Method) -> list[str]:
    """Hexadecimal sha256 of each file of weights that a method reads; downloaded ones never change."""
    return [
        hashlib.sha256(Path(source).read_bytes()).hexdigest()
        for source in _weights_in(method.to_dict()["config"])
        if Path(source).is_file()
    ]


def _weights_in(options: Any) -> Iterator[str]:
    """Give every value of a key ``weights``, however deep, in order."""
    if isinstance(options, dict):
        if isinstance(options.get("weights"), str):
            yield options["weights"]
        options = list(options.values())
    if isinstance(options, list):
        for part in options:
            yield from _weights_in(part)


def digest_files(images: Path, masks: Path) -> str:
    """Hexadecimal sha256 of the files of all annotated images, in order of stem."""
    sha = hashlib.sha256()
    for entry in pair(images, masks):
        for path in (entry.image, entry.mask):
            sha.update(entry.stem.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()
