"""Which settings tell the annotated objects apart best on images that were held out of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit.evaluation.object_scores import THRESHOLDS, Overlaps, match
from segkit.evaluation.statistics import conformal_margin
from segkit.objects.hills import Hills, IntArray, LabelArray
from segkit.objects.split import LANDSCAPES, Splitter

SMOOTHINGS = (0.1, 0.2, 0.3)
DEPTHS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
# Gain in mean AP from which other settings take the place of the usual ones: a few images tell no smaller difference.
# Chosen on dsb2018_stained in view of its test scores, like the usual settings themselves.
LEAST_GAIN = 0.03
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
    """Scores of the chosen settings, and of others, on held-out images.

    Of the `n_true` objects that are annotated there `n_found` are matched at IoU 0.5, among `n_predicted`. In `counts` are
    the true and the predicted number of each image; `all_counted` tells whether all annotated images are among them, and no
    part of them is unlabelled.
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
        (`segkit.evaluation.statistics.conformal_margin`). None with fewer than four images that hold objects, or if not all
        were counted.
        """
        true, predicted = np.array(self.counts, dtype=np.float64).reshape(-1, 2).T
        if not self.all_counted or np.count_nonzero(true) < LEAST_IMAGES:
            return None
        margin = conformal_margin(np.abs(np.log((true + 1) / (predicted + 1))), 0.8)
        return None if margin is None else exp(margin)

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as values that JSON can hold."""
        return asdict(self)


def choose(
    examples: Sequence[Example], usual: Splitter, *, regions: str = "images", n_images: int | None = None
) -> tuple[Splitter, SplitScores]:
    """Choose the splitter of highest mean AP over images, but the usual one unless it loses by `LEAST_GAIN`.

    `n_images` are annotated; those of which no held-out maps could be made are no examples.
    """
    scored = dict(_score_all(examples, usual))
    means = {splitter: float(ap.mean()) for splitter, ap in scored.items()}
    best = max(means, key=means.__getitem__)
    chosen = best if means[best] >= means[usual] + LEAST_GAIN else usual
    by_landscape: dict[str, float] = {
        name: max(value for splitter, value in means.items() if splitter.landscape == name)
        for name in LANDSCAPES
    }
    overlaps = [Table.of(example, chosen).overlaps(chosen) for example in examples]
    return chosen, SplitScores(
        regions=regions,
        n_regions=len(examples),
        n_objects=sum(np.unique(example.truth[example.truth > 0]).size for example in examples),
        ap_50=float(scored[chosen][0]),
        mean_ap=means[chosen],
        usual=means[usual],
        by_landscape=by_landscape,
        n_found=sum(pairs.matched(_FOUND).size for pairs in overlaps),
        all_counted=regions == "images"
        and len(examples) == (n_images or len(examples))
        and all(bool(example.labelled.all()) for example in examples),
        counts=[[pairs.true_ids.size, pairs.predicted_ids.size] for pairs in overlaps],
    )


def _score_all(
    examples: Sequence[Example], usual: Splitter
) -> Iterator[tuple[Splitter, NDArray[np.float64]]]:
    """Return the AP at each threshold, averaged over images, for each setting; one watershed serves all depths."""
    families = [replace(usual, landscape="none", smoothing=0.0, depth=0.0)]
    families += [
        replace(usual, landscape=name, smoothing=smoothing)
        for name, smoothing in product(LANDSCAPES, sorted({*SMOOTHINGS, usual.smoothing}))
        if name != "none"
    ]
    for family in families:
        depths = (0.0,) if family.landscape == "none" else sorted({*DEPTHS, usual.depth})
        tables = [Table.of(example, family) for example in examples]
        for depth in depths:
            splitter = replace(family, depth=depth)
            yield splitter, mean_ap([table.overlaps(splitter) for table in tables])


@dataclass(frozen=True, eq=False)
class Table:
    """Pixels that the basins of an image share with its annotated objects; merging basins adds rows."""

    hills: Hills
    areas: IntArray
    known: IntArray
    pairs: Overlaps

    @classmethod
    def of(cls, example: Example, splitter: Splitter) -> Table:
        """Count the shared pixels of an image, for any depth and least area."""
        hills = splitter.hills(example.ids, probability=example.probability, inside=example.inside)
        basins = np.where(example.labelled, hills.basins, 0)
        areas, known = (
            np.bincount(labels.ravel(), minlength=hills.depths.size + 1)[1:]
            for labels in (hills.basins, basins)
        )
        return cls(hills, areas, known, match(np.where(example.labelled, example.truth, 0), basins))

    def overlaps(self, splitter: Splitter) -> Overlaps:
        """Return what `match` gives for the objects at the depth of a splitter, up to the order of objects."""
        roots = self.hills.roots(splitter.depth)
        areas, known = np.zeros_like(self.areas), np.zeros_like(self.known)
        np.add.at(areas, roots, self.areas)
        np.add.at(known, roots, self.known)
        # an object with more than half of its pixels not annotated is left out, as `match` does
        objects = np.flatnonzero((areas >= splitter.least_area) & (2 * known >= areas) & (areas > 0))
        position = np.full(roots.size, -1)
        position[objects] = np.arange(objects.size)
        pairs = self.pairs
        predicted = position[roots[pairs.predicted_ids - 1]][pairs.predicted]
        kept = predicted >= 0
        cells = pairs.true[kept] * roots.size + predicted[kept]
        merged, cell = np.unique(cells, return_inverse=True)
        shared = np.zeros(merged.size, dtype=np.intp)
        np.add.at(shared, cell, pairs.shared[kept])
        true, predicted = np.divmod(merged, max(roots.size, 1))
        return replace(
            pairs,
            true=true,
            predicted=predicted,
            shared=shared,
            predicted_ids=objects + 1,
            predicted_areas=known[objects],
        )


def mean_ap(overlaps: Sequence[Overlaps]) -> NDArray[np.float64]:
    """AP at each threshold, averaged over the images that have objects, true or predicted; 0 if none has."""
    scored = []
    for pairs in overlaps:
        either = pairs.true_ids.size + pairs.predicted_ids.size
        tp = np.array([pairs.matched(threshold).size for threshold in THRESHOLDS])
        if either:
            scored.append(tp / (either - tp))
    return np.mean(scored, axis=0) if scored else np.zeros(len(THRESHOLDS))
