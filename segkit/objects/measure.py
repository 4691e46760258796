"""Measurements of every object of a label image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from scipy.spatial import KDTree

from segkit._common.arrays import as_array
from segkit.errors import InputError, first_few
from segkit.images.pixel_size import check_pixel_size
from segkit.objects.shapes import Runs, add_up, axes, hull_areas, moments, perimeters

Table = dict[str, NDArray[Any]]
# Minor axis in pixels below which an object is a line, or a few pixels.
_THIN = 2
# Standard deviation of the Gaussian whose derivatives are the gradient, and the farthest pixel that they look at. Of 1, 2
# and 4 it told kinds of objects of vnc_mito and kvasir_seg_256 apart best.
_SCALE = 2
REACH = 4 * _SCALE


def measure(
    labels: ArrayLike,
    image: ArrayLike | None = None,
    *,
    probability: ArrayLike | None = None,
    classes: ArrayLike | Mapping[int, str] | None = None,
    pixel_size: float | tuple[float, float] | None = None,
    channels: Sequence[str] = (),
) -> Table:
    """Measure every object of a label image.

    Parameters
    ----------
    labels : array-like of shape (H, W), int
        0 for background, a positive number for each object. Numbers may be missing, and an object may lie in pieces.
    image : array-like of shape (H, W) or (H, W, C), optional
        Intensities.
    probability : array-like of shape (H, W), optional
        Probability of each pixel to belong to an object.
    classes : array-like of shape (H, W), int, or mapping of int to str, optional
        Class id of each pixel, of which most decide for an object, the lower of two as frequent. Or the class name of
        each object by its number.
    pixel_size : float or tuple of float, optional
        Height and width of a pixel in micrometres, or one number for both.
    channels : sequence of str, optional
        Names of the channels of an image (H, W, C), such as DAPI; left out if they are not C different ones.

    Returns
    -------
    dict of str to ndarray of shape (n_objects,)
        Columns with a value for each object, by ascending number, called as in `skimage.measure.regionprops_table`:

        - ``label``, ``area``, ``centroid-0`` (row), ``centroid-1`` (column);
        - ``bbox-0``, ``bbox-1`` (first row and column), ``bbox-2``, ``bbox-3`` (those after the last);
        - ``perimeter``, ``axis_major_length``, ``axis_minor_length``, ``eccentricity``, ``solidity``;
        - ``circularity``, 4 pi times the area over the square of the perimeter, at most 1; NaN of objects whose minor axis
          is below 2 pixels;
        - ``nearest_distance``, from the centroid to the nearest other one, NaN for a single object;
        - ``touches_border``, whether the border of the image may cut the object;
        - ``intensity_mean``, ``intensity_std``, ``intensity_sum`` and ``intensity_gradient`` of an image (H, W);
          ``intensity_mean-0``, ... of each channel of an image (H, W, C), or ``intensity_mean_DAPI``, ... where `channels`
          names them. The last is the mean size of the gradient, in values per pixel, by derivatives of a Gaussian of
          standard deviation 2 pixels: low for smooth or blurred objects;
        - ``probability``, the mean over the object, and ``class``, where given;
        - ``area_um2``, ``perimeter_um``, ``centroid_um-0``, ``centroid_um-1``, ``axis_major_length_um``,
          ``axis_minor_length_um`` and ``nearest_distance_um`` where the pixel size is known. Perimeter and circularity are
          NaN where pixels are not square. The eccentricity is then that of the true shape.

    Raises
    ------
    InputError
        If the label image has another shape or dtype, or holds fractions or negative numbers, or is a mask of 0 and 255
        in several pieces. If an image or map has another size. If an object has no class name. If the pixel size is not
        a positive number.

    Notes
    -----
    Definitions are those of scikit-image: the axes are those of the ellipse with the same second moments as the pixel
    centres, so a single pixel has axes of length 0; the perimeter joins the centres of contour pixels; the solidity is
    the area over the number of pixels in the convex hull.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.zeros((6, 8), dtype=int)
    >>> labels[1:3, 1:5], labels[4:, 6:] = 1, 7
    >>> found = measure(labels, pixel_size=0.5)
    >>> found["label"].tolist(), found["area"].tolist(), found["area_um2"].tolist()
    ([1, 7], [8.0, 4.0], [2.0, 1.0])
    >>> found["touches_border"].tolist()
    [False, True]
    """
    labels = check_labels(labels)
    runs = Runs.of(labels)
    _refuse_mask(labels)
    spacing = None if pixel_size is None else check_pixel_size(pixel_size)
    table = measure_shapes(runs, perimeters(labels, runs.ids), labels.shape, spacing)
    table |= measure_distances(table, spacing)
    inside = labels > 0
    owner = runs.of_pixels()
    if image is not None:
        pixels = _fitting(image, labels, "image", n_dims=(2, 3))
        table |= measure_intensities(pixels, inside, owner, runs, channels)
    if probability is not None:
        likely = _fitting(probability, labels, "probability map")[inside]
        table["probability"] = add_up(likely, owner, runs.n_objects) / runs.areas
    if isinstance(classes, Mapping):
        table["class"] = _names(classes, runs)
    elif classes is not None:
        table["class"] = _majority(_fitting(classes, labels, "class mask")[inside], owner, runs.n_objects)
    return table


def _refuse_mask(labels: NDArray[np.integer]) -> None:
    """Refuse a mask of 0 and 255 in pieces, which are objects without numbers."""
    if not np.isin(labels, (0, 255)).all() or ndimage.label(labels, np.ones((3, 3)))[1] < 2:
        return
    raise InputError(
        "label image of 0 and 255 in several pieces, which would be one object: number them first, with "
        "segkit.objects.split or skimage.measure.label"
    )


def check_labels(labels: ArrayLike) -> NDArray[np.integer]:
    """Return a label image (H, W) as integers; refuse anything else."""
    labels = as_array(labels, name="label image")
    if labels.ndim != 2:
        raise InputError(
            f"label image of shape {labels.shape}, expected (H, W): give one number for each pixel, page by page"
        )
    if labels.dtype.kind not in "uif":
        raise InputError(
            f"label image of {labels.dtype}, expected a whole number for each object: number them first, with "
            "segkit.objects.split or skimage.measure.label"
        )
    whole = labels if labels.dtype.kind in "ui" else np.rint(np.nan_to_num(labels, nan=-1, posinf=-1))
    wrong = labels[(labels != whole) | (whole < 0)]
    if wrong.size:
        raise InputError(
            f"label image holds {wrong[0]:g}, expected 0 for background and whole numbers above it for objects: give the "
            "numbers of objects, not probabilities"
        )
    return labels.astype(np.int64) if labels.dtype.kind == "f" or labels.dtype == np.uint64 else labels


def measure_shapes(
    runs: Runs, perimeter: NDArray[np.float64], shape: tuple[int, ...], spacing: tuple[float, float] | None
) -> Table:
    """Measure all that needs no image and no other object, given the perimeters."""
    centroids, covariances = moments(runs)
    major, minor, eccentricity = axes(covariances)
    boxes = runs.boxes
    with np.errstate(divide="ignore", invalid="ignore"):  # single pixels have no perimeter
        circularity = np.minimum(4 * np.pi * runs.areas / perimeter**2, 1)
    table: Table = {
        "label": runs.ids,
        "area": runs.areas.astype(np.float64),
        "centroid-0": centroids[:, 0],
        "centroid-1": centroids[:, 1],
        **{f"bbox-{side}": boxes[:, side] for side in range(4)},
        "perimeter": perimeter,
        "axis_major_length": major,
        "axis_minor_length": minor,
        "eccentricity": eccentricity,
        # the perimeter joins centres of pixels, and says nothing of the roundness of thin lines
        "circularity": np.where(minor >= _THIN, circularity, np.nan),
        "solidity": runs.areas / hull_areas(runs),
        "touches_border": (boxes[:, :2] == 0).any(axis=1) | (boxes[:, 2:] == shape).any(axis=1),
    }
    if spacing is None:
        return table
    height, width = spacing
    major, minor, table["eccentricity"] = axes(covariances * (height**2, width**2, height * width))
    if height != width:
        table["circularity"] = np.full(runs.n_objects, np.nan)
    return table | {
        "area_um2": runs.areas * (height * width),
        "perimeter_um": perimeter * (height if height == width else np.nan),
        "centroid_um-0": centroids[:, 0] * height,
        "centroid_um-1": centroids[:, 1] * width,
        "axis_major_length_um": major,
        "axis_minor_length_um": minor,
    }


def measure_distances(table: Table, spacing: tuple[float, float] | None) -> Table:
    """Measure the distance of each object to the nearest other one, given all centroids."""
    centroids = np.stack([table["centroid-0"], table["centroid-1"]], axis=1)
    found = {"nearest_distance": _nearest(centroids)}
    return found if spacing is None else found | {"nearest_distance_um": _nearest(centroids * spacing)}


def _nearest(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of each point to the nearest other one; NaN for a single one."""
    if len(points) < 2:
        return np.full(len(points), np.nan)
    return np.asarray(KDTree(points).query(points, k=2)[0][:, 1])


def measure_intensities(
    image: NDArray[Any],
    inside: NDArray[np.bool_],
    owner: NDArray[np.intp],
    runs: Runs,
    names: Sequence[str],
    core: tuple[slice, slice] = (slice(None), slice(None)),
) -> Table:
    """Compute mean, standard deviation, sum and mean gradient of each channel; objects may lie in a core of the image."""
    planes, ends = (
        ([image], [""]) if image.ndim == 2 else (list(np.moveaxis(image, 2, 0)), _ends(names, image.shape[2]))
    )
    means, deviations, sums, gradients = {}, {}, {}, {}
    for end, plane in zip(ends, planes, strict=True):
        channel = plane.astype(np.float64)
        pixels = channel[core][inside]
        sums[f"intensity_sum{end}"] = total = add_up(pixels, owner, runs.n_objects)
        means[f"intensity_mean{end}"] = mean = total / runs.areas
        variance = add_up((pixels - mean[owner]) ** 2, owner, runs.n_objects) / runs.areas
        deviations[f"intensity_std{end}"] = np.sqrt(variance)
        steep = ndimage.gaussian_gradient_magnitude(channel, _SCALE, truncate=REACH / _SCALE)[core][inside]
        gradients[f"intensity_gradient{end}"] = add_up(steep, owner, runs.n_objects) / runs.areas
    return means | deviations | sums | gradients


def _ends(names: Sequence[str], n_channels: int) -> list[str]:
    """Return the ends of the names of columns, one for each channel."""
    if len(set(names)) == len(names) == n_channels and all(names):
        return [f"_{name}" for name in names]
    return [f"-{number}" for number in range(n_channels)]


def _names(name_of: Mapping[int, str], runs: Runs) -> NDArray[Any]:
    """Return the class name of each object."""
    missing = [str(number) for number in runs.ids.tolist() if number not in name_of]
    if missing:
        raise InputError(
            f"no class name for object {first_few(missing)}, expected one for each: add them to the classes"
        )
    return np.array([str(name_of[number]) for number in runs.ids.tolist()], dtype=np.str_)


def _majority(pixels: NDArray[Any], owner: NDArray[np.intp], n_objects: int) -> NDArray[np.int64]:
    """Find the most frequent class id of each object."""
    if not np.issubdtype(pixels.dtype, np.integer):
        raise InputError(f"class mask of {pixels.dtype}, expected integers: give class ids")
    values, index = np.unique(pixels, return_inverse=True)
    if not n_objects:
        return np.zeros(0, dtype=np.int64)
    counts = np.bincount(owner * values.size + index, minlength=n_objects * values.size)
    return np.asarray(values[counts.reshape(n_objects, -1).argmax(axis=1)], dtype=np.int64)


def _fitting(
    array: ArrayLike, labels: NDArray[np.integer], name: str, *, n_dims: tuple[int, ...] = (2,)
) -> NDArray[Any]:
    """Return an array of the size of the label image; refuse any other."""
    array = as_array(array, name=name)
    if array.shape[:2] != labels.shape or array.ndim not in n_dims:
        size = ", ".join(map(str, labels.shape))
        wanted = f"({size})" + (f" or ({size}, C)" if 3 in n_dims else "")
        raise InputError(
            f"{name} of shape {array.shape} for a label image of shape {labels.shape}, expected {wanted}: give that "
            "of the label image"
        )
    return array
