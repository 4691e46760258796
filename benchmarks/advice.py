"""The next image to annotate: the most typical one, as `segkit annotate` ranks them, beside one drawn at random.

    python -m benchmarks advice --data DATA [--sets ...] [--seeds N]

DATA holds a folder for each set with images/ and masks/. Draw k is split k of `segkit benchmark`: a third of the images is
tested on, and the others are the pool. Both ways start from the first image of the pool. One goes on with the most typical
image that is left, the one whose mean in the space of the model's kernel is nearest to the mean of the whole pool; the other
with the next images of the pool, which is in random order. Whole masks are annotated. After each image the default recipe
without networks is trained anew and scored on the test images.

To be fast, pixels on a grid, about 4,000 of each image, stand for it: their features are computed once, and `Segmenter` is
trained and scored on them. Small regions are not merged, for regions on a grid are no regions.

The ranking was chosen on these four sets, on other splits. The rows also have images that an estimate of variance advised;
it was no better than chance, and its code stands in commit 6500e25.
"""

from __future__ import annotations

import itertools
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.markdown import difference_of, markdown_table
from benchmarks.rows import Row, Study, flat
from benchmarks.segmentation import DEVELOPMENT, write_made_up
from segkit._common import FloatArray
from segkit.benchmark import few_shot_split
from segkit.evaluation.statistics import compare_pooled
from segkit.features import FilterBank, MultiscaleBank, StackedBank
from segkit.features.base import Channel, FeatureMaps, as_image
from segkit.features.normalised import NormalisedBank
from segkit.images import LabelMap, load_pairs
from segkit.live.advice import rank_typical
from segkit.segmentation.segmenter import Segmenter, default_bank

# Pixels that stand for an image, and those of its mean in the kernel's space.
CELLS, RANKED_PIXELS = 4000, 200
Build = Callable[[FilterBank, int], Segmenter]


class GridBank(FilterBank):
    """Channels of images that are features already.

    Parameters
    ----------
    grids : tuple of float
        Stride of each channel in the bank that computed it.
    """

    def __init__(self, grids: tuple[float, ...]) -> None:
        self.grids = grids

    @property
    def halo(self) -> int:
        """Pixels around a pixel that its features depend on: none."""
        return 0

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:  # noqa: ARG002
        """Name the channels."""
        return tuple(Channel(f"channel {index}", "features") for index in range(len(self.grids)))

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the stride of each channel in the bank that computed it."""
        return np.array(self.grids)

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Return the wanted channels of an image of features."""
        features = as_image(image)
        wanted = self._wanted(channels, features.shape[2])
        return [FeatureMaps(np.ascontiguousarray(features[:, :, wanted].transpose(2, 0, 1)), wanted)]


@dataclass(frozen=True, eq=False)
class GridSet:
    """Images of a set by the pixels of a grid: features (h, w, n_channels) and class ids (h, w) of each stem."""

    name: str
    bank: GridBank
    label_map: LabelMap
    features: dict[str, FloatArray]
    masks: dict[str, NDArray[Any]]

    def lesson(self, stems: Sequence[str]) -> tuple[list[FloatArray], list[NDArray[Any]]]:
        """Return features and masks of some images."""
        return [self.features[stem] for stem in stems], [self.masks[stem] for stem in stems]


def read_grid(folder: Path, bank: FilterBank) -> GridSet:
    """Compute the features of a set at the pixels of a grid, normalised by image."""
    dataset = load_pairs(folder / "images", folder / "masks")
    normalised, features, masks = NormalisedBank(bank), {}, {}
    for stem, image, mask in zip(dataset.stems, dataset.images, dataset.masks, strict=True):
        step = max(1, round(np.sqrt(mask.size / CELLS)))
        at = [np.arange(step // 2, length, step) for length in mask.shape]
        rows, cols = np.meshgrid(*at, indexing="ij")
        X = normalised.sample(image, rows.ravel(), cols.ravel(), None)
        features[stem], masks[stem] = X.reshape(*rows.shape, -1), mask[np.ix_(*at)]
    strides = bank.strides(dataset.images[0].shape[2])
    return GridSet(folder.name, GridBank(tuple(strides.tolist())), dataset.label_map, features, masks)


def most_typical(segmenter: Segmenter, grid: GridSet, train: Sequence[str], others: Sequence[str]) -> str:
    """Find the one of the other images that is nearest, in the kernel's space, to the mean of all."""
    classifier, rng = segmenter.classifier_, np.random.default_rng(0)

    def read(stem: str) -> FloatArray:
        rows = grid.features[stem].reshape(-1, grid.features[stem].shape[2])
        drawn = rows[rng.choice(len(rows), min(RANKED_PIXELS, len(rows)), replace=False)]
        return classifier.standardise(drawn.take(classifier.channels_, axis=1))

    of_others, of_train = ([read(stem) for stem in stems] for stems in (others, train))
    return others[rank_typical(classifier.kernels_, of_others, of_train)[0]]


def follow(
    way: str,
    grid: GridSet,
    pool: Sequence[str],
    test: Sequence[str],
    most: int,
    fit: Callable[[Sequence[str]], Segmenter],
) -> dict[str, list[Any]]:
    """Annotate one image after the other, the most typical or the next of the pool; return images, scores and seconds."""
    train, scores = [pool[0]], []
    seconds: dict[str, list[float]] = {"fit": [], "advise": []}
    while True:
        start = time.perf_counter()
        segmenter = fit(train)
        seconds["fit"].append(round(time.perf_counter() - start, 3))
        scores.append(round(segmenter.score(*grid.lesson(test)), 5))
        if len(train) == most:
            return {
                "images": train,
                "mean_iou": scores,
                **{f"{name}_seconds": t for name, t in seconds.items()},
            }
        start = time.perf_counter()
        others = [stem for stem in pool if stem not in train]
        train = [*train, most_typical(segmenter, grid, train, others) if way == "typical" else others[0]]
        seconds["advise"].append(round(time.perf_counter() - start, 3))


def build(bank: FilterBank, seed: int) -> Segmenter:
    """Make the default recipe for pixels of a grid."""
    bank = StackedBank([bank], normalization="set")
    return Segmenter(bank, smallest_region=0, random_state=seed)


def draw(grid: GridSet, seed: int, most: int, build: Build) -> dict[str, Any]:
    """Run one draw of one set, each way."""
    stems = list(grid.features)
    test = few_shot_split(stems, 1, seed).test
    pool = few_shot_split(stems, len(stems) - len(test), seed).train

    @cache
    def fit_once(train: tuple[str, ...]) -> Segmenter:
        return build(grid.bank, seed).fit(*grid.lesson(train), label_map=grid.label_map)

    def fit(train: Sequence[str]) -> Segmenter:
        return fit_once(tuple(train))

    return {way: follow(way, grid, pool, test, min(most, len(pool)), fit) for way in ("random", "typical")}


def run(study: Study) -> None:
    # with one image or two there may be nothing to hold out: the draws say so by their scores
    warnings.filterwarnings("ignore", "too few annotated regions", UserWarning)

    def small(bank: FilterBank, seed: int) -> Segmenter:
        return build(bank, seed).set_params(selection_pixels=400, training_pixels=1000)

    with tempfile.TemporaryDirectory() as temporary:
        if study.quick:
            write_made_up(Path(temporary) / "made-up", 6)
            study.data, names, n_draws, most, make = Path(temporary), ["made-up"], 1, 3, small
            bank: FilterBank = MultiscaleBank()
        else:
            names, n_draws, most, make = study.sets or DEVELOPMENT, study.seeds or 40, 5, build
            bank = default_bank()
        grids = {name: read_grid(study.folder(name), bank) for name in names}
        for seed, name in itertools.product(range(n_draws), names):
            measure = partial(draw, grids[name], seed, most, make)
            study.row({"set": name, "seed": seed}, measure, what="draw")


def advice(rows: list[Row]) -> str:
    """Tabulate mean IoU with the most typical images, less that with random ones."""
    draws_of, table = _by_set(rows), []
    for place in range(1, 5):
        pairs = [_paired(draws, place) for draws in draws_of.values()]
        found = [compare_pooled([pair]) for pair in pairs] + [compare_pooled(pairs)]
        table.append((place + 1, *(difference_of(one, doubt=True, splits=False) for one in found)))
    n_draws = " or ".join(str(n) for n in sorted({len(draws) for draws in draws_of.values()}))
    header = ("images annotated", *draws_of, "all, with equal weight")
    return (
        f"{markdown_table(header, table)}\nMean IoU less that with random images, 95 % interval over {n_draws} draws of "
        "each set."
    )


def _by_set(rows: list[Row]) -> dict[str, list[dict[str, Any]]]:
    draws = flat(rows, "draw")
    names = sorted({draw["set"] for draw in draws})
    return {name: [draw for draw in draws if draw["set"] == name] for name in names}


def _paired(draws: list[dict[str, Any]], place: int) -> tuple[list[float], list[float], None, None]:
    """Pair the means of draws; each draw is of other images, all of them resampled together."""
    mine, at_random = ([draw[way]["mean_iou"][place] for draw in draws] for way in ("typical", "random"))
    return mine, at_random, None, None


TABLES = {"advice": advice}
