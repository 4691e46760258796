"""Memory that a prediction takes: what fits, and what is read by region."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

from segkit._common.memory import bytes_left, require_bytes
from segkit.features import FilterBank
from segkit.features.tiles import Tile, least_tile
from segkit.images.large_image import shape_of_tiled
from segkit.images.read import TIFF_EXTENSIONS

# Bytes for each pixel of an image of two classes while it is predicted: decisions, labels, regions, probabilities.
_BYTES_OF_RESULTS = 64
# For each further class: a decision and a probability, in single and in double precision.
_BYTES_OF_CLASS = 24


def is_large(path: Path, bank: FilterBank, n_classes: int) -> bool:
    """Return whether a tiled TIFF file is read by region, by its header and the memory that is left."""
    if path.suffix.lower() not in TIFF_EXTENSIONS or not bank.is_local:
        return False
    shape = shape_of_tiled(path)
    if shape is None:
        return False
    # as stored, as floats, and the results
    return prod(shape) * 8 + bytes_of_results(shape, n_classes) > bytes_left()


def require_memory(bank: FilterBank, shape: tuple[int, ...], n_classes: int) -> None:
    """Refuse an image whose results and smallest tile do not fit under the memory limit."""
    n_pixels = least_tile(shape, bank.halo, bank.alignment) if bank.is_local else shape[0] * shape[1]
    needed = bytes_of_results(shape, n_classes) + int(n_pixels * bank.bytes_per_pixel(shape[2]))
    require_bytes(needed, what=f"image of {shape[0]} x {shape[1]} pixels")


def bytes_of_results(shape: tuple[int, ...], n_classes: int) -> int:
    """Count the bytes of decisions, labels and probabilities of an image."""
    return shape[0] * shape[1] * (_BYTES_OF_RESULTS + _BYTES_OF_CLASS * (n_classes - 2))


def bytes_of_tiles(bank: FilterBank, shape: tuple[int, ...], tiles: Sequence[Tile]) -> int:
    """Count the bytes of the maps of the largest tile."""
    return int(max(prod(tile.shape) for tile in tiles) * bank.bytes_per_pixel(shape[2]))
