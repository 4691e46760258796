"""Checks of a prediction without its true mask: expected IoU, unlike images, one class everywhere.

The probabilities of the pixels give an estimate of the IoU. Training images, each held out in turn, show the errors of such
estimates. Their mean error is subtracted; the remaining errors give the margins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan, sqrt
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, IntArray, entries_under
from segkit.errors import count
from segkit.evaluation.metrics import confusion, iou_of, object_mean
from segkit.evaluation.statistics import conformal_margin
from segkit.images import UNLABELLED, PixelSize
from segkit.images.alike import digest_image
from segkit.segmentation.unlike import KnownImages

Arrays = dict[str, NDArray[Any]]
_UNKNOWN = "Expected IoU: unknown. It takes two training images or more whose masks label most of the pixels."
IdArray = NDArray[np.uint8]
# Pixels so many times larger or smaller than those of the training images are told of.
_OTHER_PIXELS = 1.1
# Promised probabilities of the margins.
LEVELS = (0.8, 0.9)


class IoU(NamedTuple):
    """Object IoU, the mean over classes without background (NaN without objects), and mean IoU over all classes."""

    object: float
    mean: float


def expected_iou(
    ids: NDArray[np.integer], probabilities: NDArray[np.floating], presence: NDArray[np.float64]
) -> IoU:
    r"""Compute object IoU and mean IoU that a predicted mask has if the probabilities are right.

    The IoU of class k with predicted pixels :math:`m_k` is :math:`\sum m_k p_k / \sum (m_k + p_k - m_k p_k)`, the ratio of
    the expected intersection to the expected union: with many pixels it is close to the expected ratio. A class that is
    not predicted has the IoU 0 if the image holds it, else none: its weight in the mean is its `presence`. Where nothing but
    background is predicted there is no object IoU (NaN).
    """
    flat = np.asarray(ids).reshape(-1)
    given = np.asarray(probabilities).reshape(flat.size, -1)
    n_classes = given.shape[1]
    predicted = np.bincount(flat, minlength=n_classes)
    hits = np.array([np.bincount(flat, given[:, k], minlength=n_classes)[k] for k in range(n_classes)])
    union = predicted + given.sum(axis=0, dtype=np.float64) - hits
    iou = np.divide(hits, union, out=np.zeros(n_classes), where=union > 0)
    weight = np.where(predicted > 0, 1.0, presence)
    of_objects = float(np.average(iou[1:], weights=weight[1:])) if predicted[1:].any() else nan
    return IoU(of_objects, float(np.average(iou, weights=weight)))


def presence_of(holds: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the probability that one more image holds each class, by Laplace's rule, from (n_images, n_classes)."""
    return np.asarray((holds.sum(axis=0) + 1) / (len(holds) + 2))


@dataclass(frozen=True)
class HeldOutImage:
    """Scores of a training image by a model trained without it."""

    expected: IoU
    true: IoU
    image: int


def compare(
    ids: NDArray[np.integer],
    probabilities: NDArray[np.floating],
    presence: NDArray[np.float64],
    truth: NDArray[np.integer],
    image: int,
) -> HeldOutImage:
    """Compare expected and true scores of some pixels of an image; unlabelled pixels of `truth` are left out."""
    iou = iou_of(confusion(truth, ids, presence.size))
    true = IoU(float(object_mean(iou)), float(np.nanmean(iou)))
    return HeldOutImage(expected_iou(ids, probabilities, presence), true, image)


def shrunken_mean(values: NDArray[np.float64]) -> float:
    """Shrink the mean of a few values towards 0 (James and Stein's estimator with positive part, in one dimension)."""
    if values.size < 2:
        return 0.0
    mean, error = float(values.mean()), float(values.var(ddof=1)) / values.size
    return mean * max(0.0, 1 - error / mean**2) if mean else 0.0


def _means_of_groups(values: NDArray[np.float64], groups: IntArray) -> tuple[NDArray[np.float64], IntArray]:
    """Means of groups, and the place of each value's group among them."""
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return np.bincount(place, values) / sizes, place


@dataclass(frozen=True, eq=False)
class ExpectedIoU:
    """Errors of expected IoUs, from training images that were held out in turn.

    The margins are conformal: they hold for images that are exchangeable with the training images, so not for another
    microscope. With groups, as stacks with several pages, it is these that are to be exchangeable. Even then the promise is
    not exact, for each held-out image has a model of its own, of fewer images. Without further assumptions about 1 - 2 a is
    guaranteed in place of 1 - a (Barber, Candès, Ramdas, Tibshirani, Annals of Statistics 49, 2021, theorems 1 and 4), for a
    variant. The promise is an average over images and training sets: it does not hold for hard images alone.
    """

    # mean errors, subtracted from new images; absolute error of each training image's object IoU, corrected by the mean of
    # those of other groups; the group of each, unless each is one of its own
    bias: IoU
    errors: FloatArray
    presence: NDArray[np.float64]
    groups: NDArray[Any] | None = None

    @classmethod
    def learn(
        cls, held_out: Sequence[HeldOutImage], presence: NDArray[np.float64], groups: IntArray | None = None
    ) -> Self:
        """Learn the corrections and the margins from held-out training images; each is a group of its own by default."""
        excess = np.array([np.subtract(one.expected, one.true) for one in held_out]).reshape(-1, 2)
        group = np.arange(len(excess)) if groups is None else groups
        known = ~np.isnan(excess[:, 0])
        of_objects, own = excess[known, 0], group[known]
        means, place = _means_of_groups(of_objects, own)
        without = np.array([shrunken_mean(np.delete(means, k)) for k in range(means.size)])[place]
        bias = IoU(shrunken_mean(means), shrunken_mean(_means_of_groups(excess[:, 1], group)[0]))
        return cls(bias, np.abs(of_objects - without), presence, own if means.size < own.size else None)

    def estimate(self, ids: NDArray[np.integer], probabilities: NDArray[np.floating]) -> IoU:
        """Estimate the scores of a predicted mask."""
        expected = expected_iou(ids, probabilities, self.presence)
        return IoU(*np.clip(np.subtract(expected, self.bias), 0, 1).tolist())

    def margin(self, level: float) -> float | None:
        """Return the margin of a promised probability; None if there are too few training images."""
        return conformal_margin(self.errors, level, self.groups)

    def summarise(self) -> list[str]:
        """Summarise the margin in a sentence; none if there are too few images."""
        margin = self.margin(LEVELS[0])
        if margin is None:
            return []
        return [
            f"Expected object IoU of a new image is within {margin:.2f} of the truth in {100 * LEVELS[0]:.0f} % of images "
            f"(from {self._counted('training image')})."
        ]

    def explain(self) -> str:
        """Explain the correction and the margins, and which are unknown."""
        corrected = "no correction of them is certain enough to be made"
        if bias := self.bias.object:
            side = "high" if bias > 0 else "low"
            corrected = f"they were too {side} by {abs(bias):.3f} on average, which is taken off"
        unit = "training images" if self.groups is None else "groups of them"
        margins = [(level, self.margin(level)) for level in LEVELS]
        told = [
            f"unknown for {100 * level:.0f} % of images"
            if margin is None
            else f"{margin:.3f} in {100 * level:.0f} % of images"
            for level, margin in margins
        ]
        return (
            "Expected object IoU: from the probabilities of an image's pixels. On "
            f"{self._counted('held-out training image')} {corrected}. Margins: {' and '.join(told)}; they take 4 and "
            f"9 {unit}."
        )

    def to_arrays(self) -> Arrays:
        """Return the arrays by name, for a model file."""
        own = {"bias": np.array(self.bias), "errors": self.errors, "presence": self.presence}
        # arrays of a model file are of floating point
        return own if self.groups is None else own | {"groups": self.groups.astype(np.float64)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Restore what `to_arrays` gave; other arrays are ignored."""
        bias = IoU(*arrays["bias"].tolist())
        return cls(bias, arrays["errors"], arrays["presence"], arrays.get("groups"))

    def state_shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        """Shapes that the arrays must have, by name."""
        of_each = (self.errors.size,)
        shapes: dict[str, tuple[int, ...]] = {"bias": (2,), "errors": of_each, "presence": (n_classes,)}
        return shapes if self.groups is None else shapes | {"groups": of_each}

    def _counted(self, image: str) -> str:
        """How many images these are, and in how many groups."""
        told = count(self.errors.size, image)
        return f"{told} in {count(np.unique(self.groups).size, 'group')}" if self.groups is not None else told


@dataclass(frozen=True)
class ImageCheck:
    """Checks of the prediction of one image.

    Parameters
    ----------
    expected_object_iou : float or None
        Expected object IoU, the mean over classes without background; None if the training held out no whole images, or
        nothing but background is predicted.
    expected_mean_iou : float or None
        Expected mean IoU over all classes; None if the training held out no whole images.
    margin_80, margin_90 : float or None
        Largest difference between the expected and the true object IoU in 80 % and in 90 % of images; None with fewer
        than 4 and 9 training images, or groups of them.
    distance : float or None
        Distance of the image's texture to that of the nearest training image; None with fewer than 3 training images.
    unlike : tuple of str
        Differences from the training images, in plain words.
    one_class : str or None
        The class of all pixels, and how many training images are like that; None if there are several classes.
    """

    expected_object_iou: float | None
    expected_mean_iou: float | None
    margin_80: float | None
    margin_90: float | None
    distance: float | None
    unlike: tuple[str, ...]
    one_class: str | None

    @property
    def interval_80(self) -> tuple[float, float] | None:
        """Lowest and highest expected object IoU in 80 % of images, within 0 and 1; None of images unlike the training's."""
        return self._interval(self.margin_80)

    @property
    def interval_90(self) -> tuple[float, float] | None:
        """Lowest and highest expected object IoU in 90 % of images, within 0 and 1; None of images unlike the training's."""
        return self._interval(self.margin_90)

    @property
    def warning(self) -> str:
        """All warnings in one line; empty if there are none."""
        return "; ".join([*self.unlike, *([self.one_class] if self.one_class else [])])

    def _interval(self, margin: float | None) -> tuple[float, float] | None:
        expected = self.expected_object_iou
        if expected is None or margin is None or self.unlike:
            return None  # nothing is promised for images unlike the training images
        return max(0.0, expected - margin), min(1.0, expected + margin)


@dataclass(frozen=True, eq=False)
class Alarms:
    """Values from the training, by which predictions of new images are checked.

    `n_only` counts for each class the training images whose labelled pixels are all of it.
    """

    names: tuple[str, ...]
    n_only: tuple[int, ...]
    n_images: int
    expected: ExpectedIoU | None
    known: KnownImages | None
    dtypes: tuple[str, ...] = ()
    pixel_sizes: tuple[tuple[float, float], ...] = ()

    @classmethod
    def learn(
        cls,
        images: Sequence[FloatArray],
        ids: Sequence[IdArray],
        names: tuple[str, ...],
        compared: Sequence[HeldOutImage],
        features: Sequence[FloatArray],
        random_state: int,
        groups: IntArray | None = None,
    ) -> Self:
        """Learn from training images, their class ids, those compared when held out, and the features of their grids.

        `groups` numbers the group of each image, which is one of its own by default.
        """
        expected = None
        if compared:
            holds = np.array([np.isin(np.arange(len(names)), mask) for mask in ids])
            digests = [digest_image(image) for image in images]
            # a copy is known from the training, so that its small error would narrow the margins
            first = [one for one in compared if digests[one.image] not in digests[: one.image]]
            own = None if groups is None else groups[[one.image for one in first]]
            expected = ExpectedIoU.learn(first, presence_of(holds), own)
        known = KnownImages.learn(images, features, random_state)
        return cls(names, count_single(ids, len(names)), len(images), expected, known)

    def of_files(self, dtypes: Iterable[str], pixel_sizes: Iterable[PixelSize | None]) -> Alarms:
        """Return a copy that knows types and pixel sizes of the training images' files."""
        sizes = {(float(size[0]), float(size[1])) for size in pixel_sizes if size is not None}
        return replace(self, dtypes=tuple(sorted(set(dtypes))), pixel_sizes=tuple(sorted(sizes)))

    def compare_file(self, dtype: str, pixel_size: PixelSize | None) -> list[str]:
        """Name the differences of a file from the training images': bits of a pixel, and its size in micrometres."""
        told = []
        if self.dtypes and dtype not in self.dtypes:
            told.append(f"pixels of {dtype}, of the training images {' and '.join(self.dtypes)}")
        if self.pixel_sizes and pixel_size is not None:
            sides = [sqrt(height * width) for height, width in self.pixel_sizes]
            side = sqrt(pixel_size[0] * pixel_size[1])
            if not min(sides) / _OTHER_PIXELS <= side <= max(sides) * _OTHER_PIXELS:
                low, high = f"{min(sides):.3g}", f"{max(sides):.3g}"
                known = low if low == high else f"{low} to {high}"
                told.append(f"pixels of {side:.3g} µm, of the training images {known} µm")
        return told

    def check(
        self, image: FloatArray, ids: NDArray[np.integer], probabilities: FloatArray, features: FloatArray
    ) -> ImageCheck:
        """Check the prediction of an image."""
        expected, known = self.expected, self.known
        distance = None if known is None else known.distance(features)
        margin_80, margin_90 = (None if expected is None else expected.margin(level) for level in LEVELS)
        iou = None if expected is None else expected.estimate(ids, probabilities)
        return ImageCheck(
            None if iou is None or isnan(iou.object) else iou.object,
            None if iou is None else iou.mean,
            margin_80,
            margin_90,
            distance,
            () if known is None or distance is None else known.compare(image, distance),
            self._one_class(ids),
        )

    def summarise(self) -> list[str]:
        """Summarise the error of the expected IoU in a sentence; none if it is unknown."""
        return [] if self.expected is None else self.expected.summarise()

    def explain(self) -> list[str]:
        """Explain the expected IoU, its margins, and when an image counts as unlike the training images."""
        lines = [_UNKNOWN if self.expected is None else self.expected.explain()]
        return lines if self.known is None else [*lines, self.known.explain()]

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """Return a JSON-able header, and arrays by name, for a model file."""
        arrays = {} if self.expected is None else self.expected.to_arrays()
        arrays |= {} if self.known is None else self.known.to_arrays()
        header = {
            "n_only": list(self.n_only),
            "n_images": self.n_images,
            "expected": self.expected is not None,
            "known": self.known is not None,
            "dtypes": list(self.dtypes),
            "pixel_sizes": [list(size) for size in self.pixel_sizes],
        }
        return header, {f"alarms.{name}": array for name, array in arrays.items()}

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: Arrays, names: Sequence[str]) -> Alarms:
        """Restore what `to_state` described; other arrays are ignored."""
        own = entries_under(arrays, "alarms.")
        return cls(
            tuple(names),
            tuple(header["n_only"]),
            header["n_images"],
            ExpectedIoU.from_arrays(own) if header["expected"] else None,
            KnownImages.from_arrays(own) if header["known"] else None,
            tuple(header["dtypes"]),
            tuple((size[0], size[1]) for size in header["pixel_sizes"]),
        )

    def state_shapes(self, n_kept: int, n_image_channels: int) -> dict[str, tuple[int, ...]]:
        """Shapes that the arrays must have, by name."""
        shapes = {} if self.expected is None else self.expected.state_shapes(len(self.names))
        shapes |= {} if self.known is None else self.known.state_shapes(n_kept, n_image_channels)
        return {f"alarms.{name}": shape for name, shape in shapes.items()}

    def _one_class(self, ids: NDArray[np.integer]) -> str | None:
        first = int(ids.flat[0])
        if (ids != first).any():
            return None
        told = f"{self.names[first]} everywhere"
        n_only = self.n_only[first]
        if not n_only:
            return f"{told}, which no training image is"
        return f"{told}, as {n_only} of {count(self.n_images, 'training image')}"


def count_single(ids: Sequence[IdArray], n_classes: int) -> tuple[int, ...]:
    """Count for each class the images whose labelled pixels are all of that class."""
    found = [np.unique(mask[mask != UNLABELLED]) for mask in ids]
    only = [int(values[0]) for values in found if values.size == 1]
    return tuple(only.count(label) for label in range(n_classes))


def columns_of(
    checks: Sequence[ImageCheck | None], of_file: Sequence[str] = ()
) -> dict[str, float | str | None]:
    """Return the columns of summary.csv for the checks of a file's pages: of the page with the lowest expected IoU."""
    known = [check for check in checks if check is not None]
    # of pages without objects, the mean IoU alone is known
    expected = [check for check in known if check.expected_mean_iou is not None]
    worst = min(
        expected,
        key=lambda check: (
            check.expected_object_iou is None,
            check.expected_object_iou,
            check.expected_mean_iou,
        ),
        default=None,
    )
    intervals = None if worst is None or of_file else (worst.interval_80, worst.interval_90)
    (low_80, high_80), (low_90, high_90) = (pair or (None, None) for pair in intervals or (None, None))
    warnings = [
        check.warning if len(checks) == 1 else f"page {page}: {check.warning}"
        for page, check in enumerate(checks, start=1)
        if check is not None and check.warning
    ]
    return {
        "expected_object_iou": None if worst is None else worst.expected_object_iou,
        "low_80": low_80,
        "high_80": high_80,
        "low_90": low_90,
        "high_90": high_90,
        "expected_mean_iou": None if worst is None else worst.expected_mean_iou,
        "distance": max((check.distance for check in known if check.distance is not None), default=None),
        "warning": "; ".join([*of_file, *warnings]),
    }
