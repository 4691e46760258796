"""The next image to annotate: the one that segkit advises, beside one drawn at random.

    python -m benchmarks.advice --data DATA [--sets ...] [--draws N] [--most N] [--checks N] [--quick] [--out FILE]

DATA holds a folder for each set with images/ and masks/. Draw k is split k of `segkit benchmark`: a third of the images is
tested on, and the others are the pool. Both ways start from the first image of the pool. One goes on with the images
that `rank_images` puts first, one at a time, each asked of the model trained so far; the other with the
next images of the pool, which is in random order. A third way takes the most typical image that is left, the one whose mean
in the space of the model's kernel is nearest to the mean of the whole pool. Whole masks are annotated. After each image the
default recipe without networks is trained anew and scored on the test images.

To be fast, pixels on a grid, about 4,000 of each image, stand for it: their features are computed once, and `Segmenter` is
trained and scored on them. Small regions are not merged, for regions on a grid are no regions. The first draws are also
trained and scored with every pixel and all defaults, to see how far the scores agree ("checks").

The formula was chosen on these four sets, on other splits. Each draw is kept in advice.json when it is done, so that a cut
measurement goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from benchmarks.common import digest_sources, result_path
from benchmarks.segmentation import SETS
from segkit._common import FloatArray
from segkit._files import atomic
from segkit.benchmark import few_shot_split
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set
from segkit.errors import SegkitError
from segkit.features import FilterBank, MultiscaleBank
from segkit.features.base import Channel, FeatureMaps, as_image
from segkit.features.normalised import NormalisedBank
from segkit.images import LabelMap, load_pairs, write_image, write_mask
from segkit.kernels import KernelMixture
from segkit.live.advice import RHO, rank_typical, uncertainty
from segkit.segmentation.segmenter import Segmenter, default_bank

# Pixels that stand for an image, of a candidate for the advice, and of all labelled images together.
CELLS, ADVICE_PIXELS, LABELLED_PIXELS = 4000, 200, 2000
Build = Callable[[FilterBank, int], Segmenter]
Choose = Callable[[Segmenter, "GridSet", Sequence[str], Sequence[str]], str]


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
        """Give the stride of each channel in the bank that computed it."""
        return np.array(self.grids)

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Give the wanted channels of an image of features."""
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
        """Give features and masks of some images."""
        return [self.features[stem] for stem in stems], [self.masks[stem] for stem in stems]


def read_grid(folder: Path, bank: FilterBank) -> GridSet:
    """Compute the features of a set at the pixels of a grid, normalised by image."""
    dataset = load_pairs(folder / "images", folder / "masks")
    normalised, features, masks = NormalisedBank(bank, "image"), {}, {}
    for stem, image, mask in zip(dataset.stems, dataset.images, dataset.masks, strict=True):
        step = max(1, round(np.sqrt(mask.size / CELLS)))
        at = [np.arange(step // 2, length, step) for length in mask.shape]
        rows, cols = np.meshgrid(*at, indexing="ij")
        X = normalised.sample(image, rows.ravel(), cols.ravel(), None)
        features[stem], masks[stem] = X.reshape(*rows.shape, -1), mask[np.ix_(*at)]
    strides = bank.strides(dataset.images[0].shape[2])
    return GridSet(folder.name, GridBank(tuple(strides.tolist())), dataset.label_map, features, masks)


def draw_rows(features: FloatArray, n_pixels: int, rng: np.random.Generator) -> FloatArray:
    """Draw pixels of an image of features; (n, n_channels)."""
    rows = features.reshape(-1, features.shape[2])
    return rows[rng.choice(len(rows), min(n_pixels, len(rows)), replace=False)]


def read_standardised(
    segmenter: Segmenter, features: FloatArray, n_pixels: int, rng: np.random.Generator
) -> FloatArray:
    """Read kept channels, standardised, of pixels drawn from an image; (n, n_kept)."""
    classifier = segmenter.classifier_
    return classifier.standardise(draw_rows(features, n_pixels, rng).take(classifier.channels_, axis=1))


def advised(segmenter: Segmenter, grid: GridSet, train: Sequence[str], others: Sequence[str]) -> str:
    """Ask segkit which of the other images to annotate next."""
    classifier, rng = segmenter.classifier_, np.random.default_rng(0)
    candidates = []
    for stem in others:
        X = read_standardised(segmenter, grid.features[stem], ADVICE_PIXELS, rng)
        decisions = classifier.kernels_.dot(X, classifier.svm_.coef_) + classifier.svm_.intercept_
        candidates.append((X, uncertainty(segmenter.platt_.predict_proba(decisions))))
    share = LABELLED_PIXELS // len(train)
    Z = np.concatenate([read_standardised(segmenter, grid.features[stem], share, rng) for stem in train])
    return others[rank_images(classifier.kernels_, candidates, Z, len(train))[0]]


def rank_images(
    kernels: KernelMixture, candidates: Sequence[tuple[FloatArray, FloatArray]], Z: FloatArray, n_images: int
) -> NDArray[np.intp]:
    """Rank images, pixels and uncertainty of each, by what annotating one takes from the uncertain variance of all.

    Annotating image i, known by q of its pixels B, takes c(x, B) (c(B, B) + q rho I)^-1 c(B, x) from the posterior variance
    at x, where c is the covariance that ridge regression on the labelled pixels Z leaves (`segkit.live.advice`).
    """
    features = kernels.transform(Z)
    precision = features.T @ features * (n_images / len(Z)) + RHO * np.eye(features.shape[1])
    root = np.linalg.cholesky(precision)
    sizes = [len(X) for X, _ in candidates]
    X = kernels.transform(np.concatenate([X for X, _ in candidates]))
    rows = RHO**0.5 * solve_triangular(root, X.T, lower=True).T
    weights = np.concatenate([unsure for _, unsure in candidates]) / (len(sizes) * np.repeat(sizes, sizes))
    ends = np.cumsum(sizes)[:-1]
    scores = [
        np.trace(cho_solve(cho_factor(own @ own.T + RHO * len(own) * np.eye(len(own))), weighted @ own.T))
        for own, weighted in zip(
            np.split(rows, ends), np.split(rows @ (rows.T * weights @ rows), ends), strict=True
        )
    ]
    return np.argsort(-np.array(scores), kind="stable")


def most_typical(segmenter: Segmenter, grid: GridSet, train: Sequence[str], others: Sequence[str]) -> str:
    """Find the one of the other images that is nearest, in the kernel's space, to the mean of all."""
    rng = np.random.default_rng(0)
    of_others, of_train = (
        [read_standardised(segmenter, grid.features[stem], ADVICE_PIXELS, rng) for stem in stems]
        for stems in (others, train)
    )
    return others[rank_typical(segmenter.classifier_.kernels_, of_others, of_train).order[0]]


def next_in_pool(segmenter: Segmenter, grid: GridSet, train: Sequence[str], others: Sequence[str]) -> str:  # noqa: ARG001
    """Take the next image of the pool, which is in random order."""
    return others[0]


# How the next image is chosen, from the model trained so far.
WAYS: dict[str, Choose] = {"advice": advised, "random": next_in_pool, "typical": most_typical}


def follow(
    choose: Choose,
    grid: GridSet,
    pool: Sequence[str],
    test: Sequence[str],
    most: int,
    fit: Callable[[Sequence[str]], Segmenter],
) -> dict[str, list[Any]]:
    """Annotate one image after the other; give images, scores and seconds."""
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
        train = [*train, choose(segmenter, grid, train, [stem for stem in pool if stem not in train])]
        seconds["advise"].append(round(time.perf_counter() - start, 3))


class Draws:
    """Finished draws and checks of all sets, a line each.

    Parameters
    ----------
    path : Path
        The result file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.machines: list[dict[str, Any]] = known.get("machines", [])
        self.lines: dict[str, list[dict[str, Any]]] = {
            kind: known.get(kind, []) for kind in ("draws", "checks")
        }

    def find(self, kind: str, **what: Any) -> dict[str, Any] | None:
        """Find the finished line of a set and a draw, if there is one."""
        found = (line for line in self.lines[kind] if what.items() <= line.items())
        return next(found, None)

    def add(self, kind: str, line: dict[str, Any]) -> None:
        """Add a line, in place of an earlier one of the same set and seed, and write all."""
        here = machine()
        if here not in self.machines:
            self.machines.append(here)
        number = self.machines.index(here)
        same = self.find(kind, set=line["set"], seed=line["seed"])
        self.lines[kind] = [other for other in self.lines[kind] if other is not same]
        self.lines[kind].append({**line, "machine": number, "sources": digest_sources()})
        header = {
            "name": "advice",
            "mean_iou": "on the test images, after each image annotated; images in the order in which they were",
            "pixels": {"image": CELLS, "candidate": ADVICE_PIXELS, "labelled": LABELLED_PIXELS},
            "machines": self.machines,
        }
        parts = [
            f'"{kind}": [\n' + ",\n".join(json.dumps(line) for line in lines) + "\n]"
            for kind, lines in self.lines.items()
        ]
        text = json.dumps(header)[:-1] + ", " + ", ".join(parts) + "}\n"
        with atomic(self.path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def build(bank: FilterBank, seed: int) -> Segmenter:
    """Make the default recipe for pixels of a grid."""
    return Segmenter(bank, normalization="set", smallest_region=0, random_state=seed)


def measure(grid: GridSet, draws: Draws, seed: int, most: int, build: Build) -> None:
    """Run one draw of one set, unless it is finished."""
    known = draws.find("draws", set=grid.name, seed=seed) or {}
    missing = {way: choose for way, choose in WAYS.items() if way not in known}
    if not missing:
        return
    stems = list(grid.features)
    test = few_shot_split(stems, 1, seed).test
    pool = few_shot_split(stems, len(stems) - len(test), seed).train

    @cache
    def fit_once(train: tuple[str, ...]) -> Segmenter:
        return build(grid.bank, seed).fit(*grid.lesson(train), label_map=grid.label_map)

    most = min(most, len(pool))
    found = {
        way: follow(choose, grid, pool, test, most, lambda train: fit_once(tuple(train)))
        for way, choose in missing.items()
    }
    about = {"set": grid.name, "seed": seed, "pool": len(pool), "test": len(test)}
    draws.add("draws", {**about, **known, **found})
    told = ", ".join(
        f"{way} {' '.join(f'{iou:.3f}' for iou in one['mean_iou'])}" for way, one in found.items()
    )
    print(f"{grid.name}, draw {seed}: {told}", flush=True)


def check(folder: Path, draws: Draws, seed: int, build: Callable[[int], Segmenter]) -> None:
    """Train and score the last models of a finished draw with every pixel, unless this is done."""
    draw = draws.find("draws", set=folder.name, seed=seed)
    if draw is None or draws.find("checks", set=folder.name, seed=seed):
        return
    dataset = load_pairs(folder / "images", folder / "masks")
    pair_of = dict(zip(dataset.stems, zip(dataset.images, dataset.masks, strict=True), strict=True))
    test = few_shot_split(dataset.stems, 1, seed).test

    def score(train: Sequence[str]) -> float:
        lesson, exam = (
            tuple(zip(*(pair_of[stem] for stem in stems), strict=True)) for stems in (train, test)
        )
        return round(build(seed).fit(*lesson, label_map=dataset.label_map).score(*exam), 5)

    compared = ("advice", "random")
    whole = {way: score(draw[way]["images"]) for way in compared}
    grid = {way: draw[way]["mean_iou"][-1] for way in compared}
    draws.add("checks", {"set": folder.name, "seed": seed, "every_pixel": whole, "grid": grid})
    print(f"{folder.name}, draw {seed}: every pixel {whole}, grid {grid}", flush=True)


def measure_quickly(path: Path) -> None:
    """Measure a small model on made-up pictures."""

    def small(bank: FilterBank, seed: int) -> Segmenter:
        return build(bank, seed).set_params(selection_pixels=400, training_pixels=1000)

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "made-up"
        for index, (image, mask) in enumerate(zip(*make_demo_set(6, shape=(64, 96)), strict=True)):
            write_image(folder / "images" / f"{index}.png", image)
            write_mask(folder / "masks" / f"{index}.png", 255 * mask)
        draws = Draws(path)
        measure(read_grid(folder, MultiscaleBank()), draws, 0, 3, small)
        check(folder, draws, 0, lambda seed: small(MultiscaleBank(), seed))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--most", type=int, default=5, help="images annotated")
    parser.add_argument("--checks", type=int, default=2, help="draws of each set with every pixel too")
    parser.add_argument("--quick", action="store_true", help="made-up images, small models: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if not (arguments.data or arguments.quick):
        parser.error("--data: needed, or --quick")
    path = result_path(arguments, "advice.json")
    # with one image or two there may be nothing to hold out: the draws say so by their scores
    warnings.filterwarnings("ignore", "too few annotated regions", UserWarning)
    try:
        if arguments.quick:
            measure_quickly(path)
            return
        grids = [read_grid(arguments.data / name, default_bank()) for name in arguments.sets]
        draws = Draws(path)
        for seed in range(arguments.draws):
            for grid in grids:
                measure(grid, draws, seed, arguments.most, build)
            for name in arguments.sets if seed < arguments.checks else ():
                check(arguments.data / name, draws, seed, lambda seed: Segmenter(random_state=seed))
    except SegkitError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
