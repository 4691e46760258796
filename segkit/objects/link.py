"""Objects of neighbouring planes, or of consecutive time points, linked: a number for each object in space or time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from scipy.spatial import KDTree
from skimage.measure import marching_cubes, mesh_surface_area, regionprops

from segkit.errors import ConfigError, InputError
from segkit.evaluation.object_scores import best_pairs, match
from segkit.images.axes import Layout
from segkit.objects.hills import LabelArray
from segkit.objects.measure import check_labels
from segkit.objects.shapes import Runs, moments

LinkBy = Literal["planes", "time"]
AXES_OF_LINKS = {"planes": "Z", "time": "T"}
_AXES = {"T": "time", "Z": "plane", "P": "position"}
# IoU from which objects of neighbouring planes are one.
LEAST_IOU = 0.25
# Standard deviation of the Gaussian before a surface is measured, in the shortest side of a voxel: surfaces of balls come
# out some percent too large, and twice as much without.
_EVEN = 0.5
Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]


def link(
    pages: Sequence[ArrayLike], by: LinkBy, *, classes: Sequence[ArrayLike] | None = None
) -> list[LabelArray]:
    """Give the objects of pages that belong together one number.

    This is simple linking: page by page, each object has one successor at most. An object that is missing in one page is a
    new one in the next, and nothing splits or merges.

    Parameters
    ----------
    pages : sequence of array-like of shape (H, W), int
        Label images of the planes of a stack, or of consecutive times: 0 for background, a number for each object.
    by : {"planes", "time"}
        "planes": objects of neighbouring planes may be one if their IoU is 0.25 or more; the links are those of the largest
        sum of IoU. "time": objects may move. They may be one if they overlap, or if their centroids are closer than the
        diameter of a disc of their mean area. A link costs half of 1 plus the distance in diameters, 1 at most, less the
        IoU, an object without a link 1; the sum is the least.
    classes : sequence of array-like of shape (H, W), int, optional
        Class id of each pixel: objects of different classes are not linked.

    Returns
    -------
    list of ndarray of shape (H, W), int32
        Label images with the new numbers, from 1 on: by class, then in the order of pages, then of the given numbers.

    Raises
    ------
    InputError
        If a page is no label image, or sizes differ.
    ConfigError
        If `by` is neither.

    Examples
    --------
    >>> first, second = [[1, 1, 0, 0], [1, 1, 0, 2]], [[9, 9, 0, 0], [9, 0, 0, 0]]
    >>> [page.tolist() for page in link([first, second], "planes")]
    [[[1, 1, 0, 0], [1, 1, 0, 2]], [[1, 1, 0, 0], [1, 0, 0, 0]]]
    """
    check_link(by)
    arrays = [check_labels(page) for page in pages]
    if classes is not None:
        return _by_class(arrays, by, [np.asarray(page) for page in classes])
    linked: list[LabelArray] = []
    n_objects = 0
    for index, page in enumerate(arrays):
        ids, place = np.unique(page, return_inverse=True)
        number = np.zeros(ids.size, dtype=np.int32)
        if index:
            if page.shape != arrays[0].shape:
                raise InputError(f"pages of {arrays[0].shape} and {page.shape}: give pages of one size")
            before, now = _overlapping(linked[-1], page) if by == "planes" else _moved(linked[-1], page)
            number[np.searchsorted(ids, now)] = before
        new = (ids > 0) & (number == 0)
        number[new] = n_objects + np.arange(1, 1 + np.count_nonzero(new))
        n_objects += int(np.count_nonzero(new))
        linked.append(number[place].reshape(page.shape))
    return linked


def check_link(by: str) -> None:
    """Refuse anything but planes and time."""
    if by not in get_args(LinkBy):
        raise ConfigError(f"link {by}: give planes or time")


def link_axis(layout: Layout, by: LinkBy, *, name: str) -> int:
    """Return the place of the axis of planes or time among those of the pages; an only axis is what the caller says."""
    letter = AXES_OF_LINKS[by]
    axes = [axis for axis, length in zip(layout.axes, layout.shape, strict=True) if length > 1]
    if letter in axes:
        return layout.axes.index(letter)
    if len(axes) > 1 or axes == ["T"]:
        told = "time points" if axes == ["T"] else f"pages along {' and '.join(axes)}"
        other = ", or link time" if "T" in axes else ""
        raise InputError(
            f"{name} holds {told}, expected {by} ({letter}) to link: name its axes (--set data.axes=...){other}"
        )
    return layout.axes.index(axes[0]) if axes else 0


class Row(NamedTuple):
    """Pages of a file that are linked: their indices, their label images, and their place along the other axes, from 1."""

    pages: NDArray[np.intp]
    labels: list[LabelArray]
    place: dict[str, int]


def link_stack(
    pages: Sequence[ArrayLike],
    layout: Layout,
    by: LinkBy,
    *,
    name: str,
    classes: Sequence[ArrayLike] | None = None,
) -> list[Row]:
    """Link the pages of a file along its axis of planes or time.

    Along other axes nothing is linked: each time point has bodies of its own, each plane has tracks of its own. The
    numbers of a file are all different.
    """
    shape = layout.shape or (len(pages),)
    axis = link_axis(layout, by, name=name)
    order = np.moveaxis(np.arange(len(pages)).reshape(shape), axis, -1)
    others = list(zip(layout.axes, shape, strict=False))
    others[axis : axis + 1] = []
    rows: list[Row] = []
    n_objects = 0
    for index in np.ndindex(order.shape[:-1]):
        own = None if classes is None else [classes[page] for page in order[index]]
        linked = link([pages[page] for page in order[index]], by, classes=own)
        labels = [np.where(page > 0, page + np.int32(n_objects), 0) for page in linked]
        n_objects = max([n_objects, *(int(page.max(initial=0)) for page in labels)])
        place = {
            _AXES.get(letter, letter): 1 + at
            for (letter, length), at in zip(others, index, strict=True)
            if length > 1
        }
        rows.append(Row(order[index], labels, place))
    return rows


def measure_volumes(
    pages: Sequence[LabelArray],
    *,
    pixel_size: tuple[float, float] | None = None,
    z_step: float | None = None,
) -> dict[str, NDArray[Any]]:
    """Measure the objects of linked planes.

    Parameters
    ----------
    pages : sequence of ndarray of shape (H, W), int
        Label images of the planes, as `link` returns them.
    pixel_size : tuple of float, optional
        Height and width of a pixel in micrometres.
    z_step : float, optional
        Distance of the planes in micrometres.

    Returns
    -------
    dict of str to ndarray of shape (n_objects,)
        ``object_3d`` (the number), ``n_planes``, ``volume`` in voxels, ``centroid-0`` (plane), ``centroid-1`` (row),
        ``centroid-2`` (column), and ``touches_border``, whether the border of the stack may cut the object. Where both
        distances are known, ``volume_um3`` and ``surface_um2``, the area of the surface by marching cubes. Planes that lie
        apart by more than the radius of a body make it too large.
    """
    volume = np.stack(pages)
    found = regionprops(volume)  # type: ignore[no-untyped-call]
    boxes = np.array([one.bbox for one in found], dtype=np.intp).reshape(-1, 6)
    table: dict[str, NDArray[Any]] = {
        "object_3d": np.array([one.label for one in found], dtype=np.int64),
        "n_planes": boxes[:, 3] - boxes[:, 0],
        "volume": np.array([one.area for one in found], dtype=np.float64),
    }
    centroids = np.array([one.centroid for one in found]).reshape(-1, 3)
    table |= {f"centroid-{axis}": centroids[:, axis] for axis in range(3)}
    table["touches_border"] = (boxes[:, :3] == 0).any(axis=1) | (boxes[:, 3:] == volume.shape).any(axis=1)
    if pixel_size is not None and z_step is not None:
        spacing = (z_step, *pixel_size)
        table["volume_um3"] = table["volume"] * np.prod(spacing)
        table["surface_um2"] = np.array([_surface(one.image, spacing) for one in found], dtype=np.float64)
    return table


def measure_tracks(
    pages: Sequence[LabelArray], *, pixel_size: tuple[float, float] | None = None
) -> dict[str, NDArray[Any]]:
    """Measure the objects of linked times.

    Returns columns ``track_id``, ``first`` and ``last`` (times from 1), ``path_length``, the sum of the distances of the
    centroids from time to time, and ``distance`` from the first to the last, in pixels; with `pixel_size` also both with
    the ending ``_um``.
    """
    rows = []
    for time, page in enumerate(pages, start=1):
        runs = Runs.of(page)
        rows += [(number, time, *point) for number, point in zip(runs.ids, moments(runs)[0], strict=True)]
    points = np.array(rows, dtype=np.float64).reshape(-1, 4)
    points = points[np.lexsort((points[:, 1], points[:, 0]))]
    tracks, first, of_track = np.unique(points[:, 0], return_index=True, return_inverse=True)
    last = np.append(first[1:], len(points))[: tracks.size] - 1
    table: dict[str, NDArray[Any]] = {
        "track_id": tracks.astype(np.int64),
        "first": points[first, 1].astype(np.int64),
        "last": points[last, 1].astype(np.int64),
    }
    for ending, size in (("", (1.0, 1.0)), ("_um", pixel_size)):
        if size is not None:
            places = points[:, 2:] * size
            same = of_track[1:] == of_track[:-1]
            steps = np.hypot(*np.diff(places, axis=0).T) * same
            table[f"path_length{ending}"] = np.bincount(of_track[1:], steps, minlength=tracks.size)
            table[f"distance{ending}"] = np.hypot(*(places[last] - places[first]).T)
    return table


def _by_class(
    pages: Sequence[NDArray[np.integer]], by: LinkBy, classes: Sequence[NDArray[np.integer]]
) -> list[LabelArray]:
    """Link the objects of each class by themselves."""
    linked = [np.zeros(page.shape, dtype=np.int32) for page in pages]
    n_objects = 0
    for class_id in sorted({*itertools.chain(*(np.unique(page).tolist() for page in classes))}):
        alone = [np.where(ids == class_id, page, 0) for page, ids in zip(pages, classes, strict=True)]
        found = link(alone, by)
        for page, new in zip(linked, found, strict=True):
            page[new > 0] = new[new > 0] + n_objects
        n_objects += max(int(new.max(initial=0)) for new in found)
    return linked


def _overlapping(before: LabelArray, now: NDArray[np.integer]) -> Pairs:
    """Return the numbers of the objects of two planes that are one."""
    pairs = match(before, now)
    able = np.flatnonzero(pairs.iou >= LEAST_IOU)
    chosen = able[best_pairs(pairs.true[able], pairs.predicted[able], 1 - pairs.iou[able])]
    return pairs.true_ids[pairs.true[chosen]], pairs.predicted_ids[pairs.predicted[chosen]]


def _moved(before: LabelArray, now: NDArray[np.integer]) -> Pairs:
    """Return the numbers of the objects of two times that are one."""
    runs = Runs.of(before), Runs.of(now)
    if not all(one.n_objects for one in runs):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    centroids, areas = [moments(one)[0] for one in runs], [one.areas for one in runs]
    n_now = areas[1].size
    overlaps = match(before, now)
    shared = (
        np.searchsorted(runs[0].ids, overlaps.true_ids)[overlaps.true] * n_now
        + np.searchsorted(runs[1].ids, overlaps.predicted_ids)[overlaps.predicted]
    )
    # the diameter of the mean area of two objects is at most that of the larger one
    reaches = [2 * np.sqrt(own / np.pi) for own in areas]
    ahead, back = (
        _within(centroids[0], centroids[1], reaches[0]),
        _within(centroids[1], centroids[0], reaches[1]),
    )
    keys = np.unique(np.concatenate([ahead[0] * n_now + ahead[1], back[1] * n_now + back[0], shared]))
    one, other = np.divmod(keys, n_now)
    iou = np.zeros(keys.size)
    iou[np.searchsorted(keys, shared)] = overlaps.iou
    diameter = 2 * np.sqrt((areas[0][one] + areas[1][other]) / 2 / np.pi)
    distance = np.linalg.norm(centroids[0][one] - centroids[1][other], axis=1) / diameter
    able = np.flatnonzero((iou > 0) | (distance < 1))
    cost = (1 + np.minimum(distance, 1) - iou) / 2
    chosen = able[best_pairs(one[able], other[able], cost[able])]
    return runs[0].ids[one[chosen]], runs[1].ids[other[chosen]]


def _within(points: NDArray[np.float64], others: NDArray[np.float64], reach: NDArray[np.float64]) -> Pairs:
    """Return the pairs of a point and another within the reach of the first."""
    found = KDTree(others).query_ball_point(points, reach)
    return np.repeat(np.arange(len(points)), [len(own) for own in found]), np.concatenate([*found]).astype(
        np.intp
    )


def _surface(inside: NDArray[np.bool_], spacing: tuple[float, ...]) -> float:
    """Area of the surface of a body: marching cubes after a Gaussian that evens out the steps between voxels."""
    soft = ndimage.gaussian_filter(
        np.pad(inside, 2).astype(np.float32), [_EVEN * min(spacing) / step for step in spacing]
    )
    # of a single voxel little is left
    level = min(0.5, float(soft.max()) / 2)
    vertices, faces, *_ = marching_cubes(soft, level, spacing=spacing)  # type: ignore[no-untyped-call]
    return float(mesh_surface_area(vertices, faces))  # type: ignore[no-untyped-call]
