"""Objects in a benchmark: masks that number them, the ways to tell predicted ones apart, and counts of matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from skimage.feature import peak_local_max
from skimage.segmentation import watershed

from segkit.errors import InputError
from segkit.evaluation.object_scores import THRESHOLDS, match
from segkit.images import Reading, pair
from segkit.images.numbering import MaskOptions
from segkit.images.pairs import PairReader
from segkit.images.reading import joined
from segkit.objects.annotated import splitter_of
from segkit.objects.hills import LabelArray

# Ways to tell predicted objects apart; only segkit learns one.
LEARNT, COMPONENTS, WATERSHED = "learnt", "components", "watershed"
SPLITTINGS = (LEARNT, COMPONENTS, WATERSHED)


class Annotated(NamedTuple):
    """An image with its mask of classes, and its objects if masks number them."""

    stem: str
    file: str
    image: NDArray[np.float32]
    mask: NDArray[Any]
    instances: LabelArray | None = None


def read_annotated(
    images: str | Path,
    masks: str | Path,
    stems: Sequence[str],
    *,
    objects: bool = False,
    n_channels: int | None = None,
    unlabelled: int | None = None,
    reading: Reading | None = None,
) -> list[Annotated]:
    """Read images of a folder with masks of classes, or that number objects, by name; pages are named "stem#1", ..."""
    wanted = set(stems)
    files = {stem.rpartition("#")[0] for stem in stems} | wanted
    pairs = [entry for entry in pair(images, masks) if entry.stem in files]
    reader = PairReader(reading, options=MaskOptions(None, unlabelled, "instances" if objects else None))
    items = {item.page.stem: item for item in reader.read(pairs) if item.page.stem in wanted}
    reader.refuse()
    if missing := wanted - items.keys():
        raise InputError(
            f"{', '.join(sorted(missing))}: no such images in {images}, but they were there when the benchmark "
            f"started: put them back, or start again with --overwrite"
        )
    found = []
    for stem, (page, mask, _) in items.items():
        image = joined(page.around, n_channels or page.image.shape[2])
        instances = mask.labels.astype(np.int32) if objects else None
        found.append(Annotated(stem, page.file, image, mask.classes if objects else mask.values, instances))
    return found


def typical_radius(instances: Sequence[LabelArray]) -> float:
    """Radius of a disc of the median area of annotated objects, in pixels; 1 without any."""
    return splitter_of(instances).radius if any(labels.any() for labels in instances) else 1.0


def count_matches(
    truth: LabelArray,
    foreground: NDArray[np.bool_],
    learnt: LabelArray | None,
    *,
    radius: float,
    labelled: NDArray[np.bool_],
) -> dict[str, dict[str, Any]]:
    """Count the objects of one image, and matches with the true ones, for each way to tell them apart."""
    found = {} if learnt is None else {LEARNT: learnt}
    found[COMPONENTS] = connected_components(foreground)
    found[WATERSHED] = fixed_watershed(ndimage.binary_fill_holes(foreground), radius)
    counts = {}
    for splitting, labels in found.items():
        pairs = match(truth, labels, labelled=labelled)
        counts[splitting] = {
            "n_true": int(pairs.true_ids.size),
            "n_predicted": int(pairs.predicted_ids.size),
            "tp": [int(pairs.matched(threshold).size) for threshold in THRESHOLDS],
        }
    return counts


def image_ap(counts: Mapping[str, Any]) -> list[float] | None:
    """AP of an image at each threshold, TP / (TP + FP + FN); None without any object, true or predicted."""
    either = counts["n_true"] + counts["n_predicted"]
    return [tp / (either - tp) for tp in counts["tp"]] if either else None


def connected_components(mask: ArrayLike) -> LabelArray:
    """Label the connected regions of a mask; pixels hang together by their sides."""
    return np.asarray(ndimage.label(_checked(mask), output=np.int32)[0])


def fixed_watershed(mask: ArrayLike, apart: float) -> LabelArray:
    """Split a mask by watershed on the distance from the background; seeds are maxima at least `apart` pixels apart."""
    inside = _checked(mask)
    if not 0 <= apart < np.inf:
        raise InputError(f"seeds {apart} pixels apart: give a number from 0")
    distance = ndimage.distance_transform_edt(inside)
    peaks = peak_local_max(  # type: ignore[no-untyped-call]
        distance, min_distance=max(1, round(apart)), labels=inside.astype(np.intp), exclude_border=False
    )
    seeds = np.zeros(inside.shape, dtype=np.int32)
    seeds[tuple(peaks.T)] = np.arange(1, len(peaks) + 1)
    labels = watershed(-distance, seeds, mask=inside)  # type: ignore[no-untyped-call]
    return np.asarray(labels, dtype=np.int32)


def _checked(mask: ArrayLike) -> NDArray[Any]:
    inside = np.asarray(mask) > 0
    if inside.ndim != 2:
        raise InputError(f"mask of shape {inside.shape}: give (H, W)")
    return inside
