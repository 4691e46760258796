"""Objects in a benchmark: masks that number them, the ways to tell predicted ones apart, and counts of matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segkit.benchmark.reading import pairs_of, refuse_missing
from segkit.errors import InputError
from segkit.evaluation.objects import THRESHOLDS, match
from segkit.images import Reading
from segkit.images.numbering import classes_of, without
from segkit.images.pairs import read_items
from segkit.images.reading import joined
from segkit.objects.annotated import splitter_of
from segkit.objects.watershed import connected_components, fixed_watershed
from segkit.segmentation.base import BaseSegmenter
from segkit.segmentation.segmenter import Segmenter

# Ways to tell predicted objects apart; only segkit learns one.
LEARNT, COMPONENTS, WATERSHED = "learnt", "components", "watershed"
SPLITTINGS = (LEARNT, COMPONENTS, WATERSHED)
LabelArray = NDArray[np.int32]


class Annotated(NamedTuple):
    """An image with its mask of classes, and its objects if masks number them."""

    stem: str
    image: NDArray[np.float32]
    mask: NDArray[Any]
    instances: LabelArray | None = None


def read_annotated(
    images: str | Path,
    masks: str | Path,
    stems: Sequence[str],
    *,
    n_channels: int | None = None,
    unlabelled: int | None = None,
    reading: Reading | None = None,
) -> list[Annotated]:
    """Read images of a folder with masks that number objects, by name; pages are named "stem#1", ..."""
    faults: list[str] = []
    items = list(read_items(pairs_of(images, masks, stems), faults, [], reading=reading))
    if faults:
        raise InputError("; ".join(faults[:10]))
    wanted = set(stems)
    found = []
    for item in (item for item in items if item.stem in wanted):
        blank = None if item.is_outlined else unlabelled
        objects = without(item.mask, blank).astype(np.int32)
        image = joined(item.around, n_channels or item.image.shape[2])
        found.append(Annotated(item.stem, image, classes_of(objects, item.mask, blank), objects))
    refuse_missing(stems, [stem for stem, *_ in found], images)
    return found


def typical_radius(instances: Sequence[LabelArray]) -> float:
    """Radius of a disc of the median area of annotated objects, in pixels; 1 without any."""
    return splitter_of(instances).radius if any(labels.any() for labels in instances) else 1.0


def predict_with_objects(
    segmenter: BaseSegmenter, image: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], LabelArray | None]:
    """Predict mask values, probabilities, and objects where the segmenter has learnt to tell them apart."""
    if isinstance(segmenter, Segmenter):
        labels, prediction, probability = segmenter.predict_objects(image, return_masks=True)
        return prediction, probability, labels
    prediction, probability = segmenter.predict(image, return_proba=True)
    return prediction, probability, None


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
