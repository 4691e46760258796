"""Checks of a prediction without its true mask: expected IoU, unlike images, one class everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, count
from segkit.images import UNLABELLED, PixelSize
from segkit.segmentation.expected import LEVELS, ExpectedIoU
from segkit.segmentation.unlike import KnownImages

Arrays = dict[str, NDArray[Any]]
_UNKNOWN = "Expected IoU: unknown. It takes two training images or more whose masks label most of the pixels."
IdArray = NDArray[np.uint8]
# Pixels so many times larger or smaller than those of the training images are told of.
_OTHER_PIXELS = 1.1


@dataclass(frozen=True)
class ImageCheck:
    """Checks of the prediction of one image.

    Parameters
    ----------
    expected_iou : float or None
        Expected mean IoU over classes; None if the training held out no whole images.
    margin_80, margin_90 : float or None
        Largest difference between the expected and the true mean IoU in 80 % and in 90 % of images; None with fewer
        than 4 and 9 training images.
    distance : float or None
        Distance of the image's texture to that of the nearest training image; None with fewer than 3 training images.
    unlike : tuple of str
        Differences from the training images, in plain words.
    one_class : str or None
        The class of all pixels, and how many training images are like that; None if there are several classes.
    """

    expected_iou: float | None
    margin_80: float | None
    margin_90: float | None
    distance: float | None
    unlike: tuple[str, ...]
    one_class: str | None

    @property
    def interval_80(self) -> tuple[float, float] | None:
        """Lowest and highest expected mean IoU in 80 % of images, within 0 and 1; None of images unlike the training's."""
        return self._interval(self.margin_80)

    @property
    def interval_90(self) -> tuple[float, float] | None:
        """Lowest and highest expected mean IoU in 90 % of images, within 0 and 1; None of images unlike the training's."""
        return self._interval(self.margin_90)

    @property
    def warning(self) -> str:
        """All warnings in one line; empty if there are none."""
        return "; ".join([*self.unlike, *([self.one_class] if self.one_class else [])])

    def _interval(self, margin: float | None) -> tuple[float, float] | None:
        if self.expected_iou is None or margin is None or self.unlike:
            return None  # nothing is promised for images unlike the training images
        return max(0.0, self.expected_iou - margin), min(1.0, self.expected_iou + margin)


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
        return ImageCheck(
            None if expected is None else expected.estimate(ids, probabilities),
            margin_80,
            margin_90,
            distance,
            () if known is None or distance is None else known.compare(image, distance),
            self._one_class(ids),
        )

    def tell(self) -> list[str]:
        """Summarise the error of the expected IoU in a sentence; none if it is unknown."""
        return [] if self.expected is None else self.expected.tell()

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
        own = {
            name.removeprefix("alarms."): array
            for name, array in arrays.items()
            if name.startswith("alarms.")
        }
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
    expected = [check for check in known if check.expected_iou is not None]
    worst = min(expected, key=lambda check: check.expected_iou or 0.0, default=None)
    intervals = None if worst is None or of_file else (worst.interval_80, worst.interval_90)
    (low_80, high_80), (low_90, high_90) = (pair or (None, None) for pair in intervals or (None, None))
    warnings = [
        check.warning if len(checks) == 1 else f"page {page}: {check.warning}"
        for page, check in enumerate(checks, start=1)
        if check is not None and check.warning
    ]
    return {
        "expected_iou": None if worst is None else worst.expected_iou,
        "low_80": low_80,
        "high_80": high_80,
        "low_90": low_90,
        "high_90": high_90,
        "distance": max((check.distance for check in known if check.distance is not None), default=None),
        "warning": "; ".join([*of_file, *warnings]),
    }
