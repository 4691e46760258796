"""Objects of a label image on disk measured and traced, a few blocks at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common.memory import bytes_left
from segkit.images.polygons import Polygon, trace
from segkit.images.pyramids import OnDisk
from segkit.objects.by_block import Region, Window, side_of_blocks
from segkit.objects.measure import REACH, Table, measure_distances, measure_intensities, measure_shapes
from segkit.objects.shapes import Runs, add_up, perimeters

# Pixels on each side that the gradient in a block depends on; the perimeter needs two.
_FRAME = REACH
_BYTES_OF_TRACING = 100


class Pixels(NamedTuple):
    """What is measured in a block: the image around it as it is stored, probabilities of the foreground, class ids."""

    image: NDArray[Any]
    probability: NDArray[Any]
    classes: NDArray[np.uint8]


def measure_by_block(
    labels: OnDisk,
    n_objects: int,
    blocks: Sequence[Region],
    look: Callable[[int, Region], Pixels],
    *,
    n_classes: int,
    pixel_size: tuple[float, float] | None = None,
    channels: Sequence[str] = (),
) -> Table:
    """Measure every object of a label image on disk, as `segkit.objects.measure` does one in memory.

    Parameters
    ----------
    labels : array on disk, (H, W), int
        0 for the background, objects from 1, each in one piece.
    n_objects : int
        Number of objects.
    blocks : sequence of pairs of slices
        Rows and columns that cover the image, row of blocks by row of blocks.
    look : callable
        ``look(number, around)`` reads what is to be measured in a block that holds objects; the image in the region around
        it.
    n_classes : int
        Class ids are below.
    pixel_size, channels
        As for `measure`.

    Returns
    -------
    dict of str to ndarray
        As of `measure`; ``class`` holds class ids.
    """
    sums = _Sums.of(n_objects, n_classes)
    open_runs = np.zeros((4, 0), dtype=np.int64)
    tables: list[Table] = []
    for stop, band in groupby(enumerate(blocks), lambda numbered: numbered[1][0].stop):
        runs = [open_runs]
        for number, region in band:
            runs.extend(_look_at(labels, region, sums, partial(look, number), channels))
        open_runs = np.concatenate(runs, axis=1)
        goes_on = np.zeros(n_objects + 1, dtype=bool)
        if stop < labels.shape[0]:
            goes_on[labels[stop - 1]] = True
        done = ~goes_on[open_runs[0]]
        if done.any():
            own = _sorted(open_runs[:, done])
            tables.append(measure_shapes(own, sums.perimeters[own.ids], labels.shape, pixel_size))
            open_runs = open_runs[:, ~done]
    if not tables:
        tables.append(measure_shapes(_sorted(open_runs), np.zeros(0), labels.shape, pixel_size))
    order = np.argsort(np.concatenate([table["label"] for table in tables]))
    table = {name: np.concatenate([part[name] for part in tables])[order] for name in tables[0]}
    return table | measure_distances(table, pixel_size) | sums.table()


@dataclass(eq=False)
class _Sums:
    """What is added up over the pixels of each object, by its number."""

    n_pixels: NDArray[np.int64]
    perimeters: NDArray[np.float64]
    probability: NDArray[np.float64]
    classes: NDArray[np.int64]
    # of each channel: mean, sum, sum of squared differences from the mean, and sum of gradients
    means: dict[str, NDArray[np.float64]]
    totals: dict[str, NDArray[np.float64]]
    squares: dict[str, NDArray[np.float64]]
    gradients: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, n_objects: int, n_classes: int) -> _Sums:
        """Start with nothing."""
        n = n_objects + 1
        return cls(
            np.zeros(n, np.int64),
            np.zeros(n),
            np.zeros(n),
            np.zeros((n, n_classes), np.int64),
            {},
            {},
            {},
            {},
        )

    def add(self, ids: NDArray[np.int64], n_pixels: NDArray[np.int64], measured: Table) -> None:
        """Add intensities of the pixels of objects in a block."""
        before = self.n_pixels[ids]
        after = before + n_pixels
        for name in (name for name in measured if name.startswith("intensity_mean")):
            end = name.removeprefix("intensity_mean")
            for sums in (self.means, self.totals, self.squares, self.gradients):
                sums.setdefault(end, np.zeros(self.n_pixels.size))
            # means and variances of two parts joined (Chan, Golub and LeVeque, 1979)
            apart = measured[name] - self.means[end][ids]
            self.means[end][ids] += apart * n_pixels / after
            within = measured[f"intensity_std{end}"] ** 2 * n_pixels
            self.squares[end][ids] += within + apart**2 * before * n_pixels / after
            self.totals[end][ids] += measured[f"intensity_sum{end}"]
            self.gradients[end][ids] += measured[f"intensity_gradient{end}"] * n_pixels
        self.n_pixels[ids] = after

    def table(self) -> Table:
        """Return the columns of all objects."""
        own = slice(1, None)
        n_pixels = self.n_pixels[own]
        deviations = {end: np.sqrt(squares[own] / n_pixels) for end, squares in self.squares.items()}
        return {
            **{f"intensity_mean{end}": means[own] for end, means in self.means.items()},
            **{f"intensity_std{end}": values for end, values in deviations.items()},
            **{f"intensity_sum{end}": totals[own] for end, totals in self.totals.items()},
            **{f"intensity_gradient{end}": totals[own] / n_pixels for end, totals in self.gradients.items()},
            "probability": self.probability[own] / n_pixels,
            "class": self.classes[own].argmax(axis=1),
        }


def _look_at(
    labels: OnDisk, region: Region, sums: _Sums, look: Callable[[Region], Pixels], channels: Sequence[str]
) -> Iterator[NDArray[np.int64]]:
    """Add what is in a block to the sums, and return its runs: object, row, first column and the one after the last."""
    window = Window(*region, labels.shape).grown(*[_FRAME] * 4)
    framed = labels[window.region]
    core = window.inside(region)
    part = framed[core]
    if not part.any():
        return
    runs, inside = Runs.of(part), part > 0
    ids, owner, pixels = runs.ids, runs.of_pixels(), look(window.region)
    sums.perimeters[ids] += perimeters(np.where(np.isin(framed, ids), framed, 0), ids, core)
    sums.probability[ids] += add_up(pixels.probability[inside], owner, ids.size)
    np.add.at(sums.classes, (ids[owner], pixels.classes[inside]), 1)
    sums.add(ids, runs.areas, measure_intensities(pixels.image, inside, owner, runs, channels, core))
    row, col = (side.start for side in region)
    yield np.stack([ids[runs.owner], runs.row + row, runs.start + col, runs.stop + col])


def _sorted(runs: NDArray[np.int64]) -> Runs:
    """Sort runs by object, row and column."""
    numbers, row, start, stop = runs[:, np.lexsort((runs[2], runs[1], runs[0]))]
    ids, owner = np.unique(numbers, return_inverse=True)
    return Runs(ids, owner, row, start, stop)


def trace_by_block(
    labels: OnDisk, table: Mapping[str, NDArray[Any]], *, side: int | None = None
) -> Iterator[tuple[int, list[Polygon] | None]]:
    """Trace the outline of every object, None if memory does not hold the box around it; see `trace`."""
    if not len(table["label"]):
        return
    boxes = np.stack([table[f"bbox-{end}"] for end in range(4)], axis=1)
    side = side or side_of_blocks(_BYTES_OF_TRACING)
    group = np.unique(boxes[:, :2] // side, axis=0, return_inverse=True)[1].ravel()
    order = np.argsort(group, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        together = _fits(boxes[own])
        for objects in [own] if together else own[:, np.newaxis]:
            ids = table["label"][objects]
            if not _fits(boxes[objects]):
                yield int(ids[0]), None
                continue
            top, left = boxes[objects, :2].min(axis=0)
            bottom, right = boxes[objects, 2:].max(axis=0)
            part, corner = labels[top:bottom, left:right], np.array([left, top])
            traced = trace(np.where(np.isin(part, ids), part, 0))
            for number, polygons in traced.items():
                yield number, [[ring + corner for ring in rings] for rings in polygons]


def _fits(boxes: NDArray[np.int64]) -> bool:
    """Return whether memory holds the box around all boxes, with what tracing needs."""
    height, width = boxes[:, 2:].max(axis=0) - boxes[:, :2].min(axis=0)
    return bool(int(height) * int(width) * _BYTES_OF_TRACING <= bytes_left())
