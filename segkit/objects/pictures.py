"""Pictures of objects: outlines in other colours than those of the neighbours."""

from __future__ import annotations

import heapq
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from segkit.errors import InputError
from segkit.images.write import CLASS_COLOURS, RIM, line_width_of, to_rgb, write_image
from segkit.objects.measure import check_labels
from segkit.objects.shapes import Runs

# Bright ones only: between objects that touch no dark rim helps. Six are enough for any map, see `colour_apart`.
OBJECT_COLOURS = np.array([*CLASS_COLOURS[[0, 1, 2, 3, 6]], (255, 255, 255)])
# Objects nearer than so many line widths are neighbours.
_NEAR = 4


def write_object_overlay(path: str | Path, image: ArrayLike, labels: ArrayLike) -> None:
    """Write the picture that `object_overlay` draws."""
    write_image(path, object_overlay(image, labels) / 255)


def object_overlay(
    image: ArrayLike, labels: ArrayLike, *, line_width: int | None = None
) -> NDArray[np.uint8]:
    """Draw outlines inside the objects of an image, with a dark rim around them; there is no tint: the stain stays."""
    image, labels = np.asarray(image, dtype=np.float64), check_labels(labels)
    if image.shape[:2] != labels.shape:
        raise InputError(
            f"image of {image.shape[:2]} pixels under a label image of shape {labels.shape}, expected one size: draw "
            "the objects over the image they belong to"
        )
    runs = Runs.of(labels)
    width = _line_width(labels.shape, runs) if line_width is None else line_width
    index = np.zeros(labels.shape, dtype=np.intp)
    inside = labels > 0
    index[inside] = runs.of_pixels() + 1
    colours = OBJECT_COLOURS[colour_apart(index, _NEAR * width)]
    picture = np.rint(255 * to_rgb(image)).astype(np.uint8)
    line = inside & (_shrunk(index, width) == 0)
    picture[ndimage.binary_dilation(inside, iterations=width) & ~inside] = RIM
    picture[line] = colours[index[line] - 1]
    return picture


def colour_apart(index: NDArray[np.intp], distance: int) -> NDArray[np.intp]:
    """Choose a colour for each object, other than those of objects within `distance` steps.

    Objects are coloured in reverse order of taking away the one with the fewest neighbours left. In a map in the plane
    that one has five at most, so that six colours are enough. Objects in pieces may need more, and share one.
    """
    neighbours = _neighbours(index, distance)
    n_colours = len(OBJECT_COLOURS)
    colours = np.full(len(neighbours) + 1, -1)
    for number in reversed(_fewest_first(neighbours)):
        taken = np.bincount(
            [colours[other] for other in neighbours[number] if colours[other] >= 0], minlength=n_colours
        )
        turns = np.roll(np.arange(n_colours), -(number - 1))
        colours[number] = turns[np.argmin(taken[turns])]
    return colours[1:]


def _neighbours(index: NDArray[np.intp], distance: int) -> dict[int, set[int]]:
    """Find the neighbours of each object: those it meets once all have grown by half the distance."""
    grown = index
    for _ in range(distance // 2):
        grown = np.where(grown == 0, np.max(_beside(grown), axis=0), grown)
    neighbours: dict[int, set[int]] = {number: set() for number in range(1, int(index.max(initial=0)) + 1)}
    for one, other in ((grown[1:], grown[:-1]), (grown[:, 1:], grown[:, :-1])):
        meet = (one != other) & (one > 0) & (other > 0)
        for first, second in np.unique(np.stack((one[meet], other[meet])), axis=1).T.tolist():
            neighbours[first].add(second)
            neighbours[second].add(first)
    return neighbours


def _fewest_first(neighbours: dict[int, set[int]]) -> list[int]:
    """Order objects by taking away, again and again, the one with the fewest neighbours left."""
    left = {number: len(others) for number, others in neighbours.items()}
    queue = [(degree, number) for number, degree in left.items()]
    heapq.heapify(queue)
    order = []
    while queue:
        degree, number = heapq.heappop(queue)
        if left.get(number) != degree:
            continue  # an entry from when it had more neighbours, or was there
        order.append(number)
        del left[number]
        for other in neighbours[number]:
            if other in left:
                left[other] -= 1
                heapq.heappush(queue, (left[other], other))
    return order


def _shrunk(index: NDArray[np.intp], width: int) -> NDArray[np.intp]:
    """Take away the outermost pixels of each object; the border of the image is no edge of an object."""
    for _ in range(width):
        index = np.where(np.all([index == other for other in _beside(index)], axis=0), index, 0)
    return index


def _beside(index: NDArray[np.intp]) -> tuple[NDArray[np.intp], ...]:
    """Return what is above, below, left and right of each pixel; beyond the border as on it."""
    padded = np.pad(index, 1, mode="edge")
    return padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]


def _line_width(shape: tuple[int, ...], runs: Runs) -> int:
    """Return the width of outlines: one pixel for each 800 of the longer side, at most a tenth of a usual object."""
    if not runs.n_objects:
        return 1
    return max(1, min(line_width_of(shape), int(np.sqrt(np.median(runs.areas)) / 10)))
