"""004 Table 2: the bandwidth of a Gaussian kernel by cross-validation and by scores that train nothing.

    python -m benchmarks bandwidths --data DATA --weights WEIGHTS

DATA holds a folder for each set with images/ and masks/. Channels and training pixels are drawn and selected as by
`segkit.Segmenter` with the paper's recipe, once for each set, bank, number of images and seed; every bandwidth then sees the
same features. There are 1,024 random features; 20,000 training pixels, 10,000 of them in cross-validation, whose folds are
images, or blocks of a single image, 2,000 for the other scores; C = 1 times the sum over training pixels. Test IoU is from
4,000 pixels (all, if fewer) of each test image, drawn at random, the same for every rule. The threshold of the decision is
the best on held-out pixels (as Segmenter does), or zero (eq. 7.18); cross-validation chooses by the mean IoU at that
threshold. Seconds are processor seconds of the selection alone, for the whole grid.

A row holds, for each grid and rule, what it chose, in how many seconds, and the test IoU of every image.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from benchmarks.markdown import markdown_table, signed
from benchmarks.rows import Row, Study, flat
from benchmarks.segmentation import split, write_made_up
from segkit import Segmenter
from segkit.benchmark.methods import DEFAULT_METHODS
from segkit.classifier.svm import LinearSVM
from segkit.config.schema import Config
from segkit.evaluation.metrics import iou_of
from segkit.evaluation.statistics import compare_pooled
from segkit.features import FilterBank
from segkit.features.base import sample_maps
from segkit.images import UNLABELLED, Dataset, load_pairs
from segkit.images.sampling import PixelSample, assign_folds, draw_pixels
from segkit.kernels import (
    Gaussian,
    MixtureRFF,
    RandomFourierFeatures,
    median_gamma,
    mmd,
)
from segkit.kernels.base import gram_matrices
from segkit.segmentation.threshold import best_threshold

# The paper's grid, for maps as they are, and the library's, in units of the median heuristic.
RAW_GAMMAS = np.logspace(-10, 6, 9)
MULTIPLES = np.logspace(-6, 6, 13, base=2)
# Table 2 of the paper, of other images and of VGG16: IoU and discrepancy by the decade of gamma.
TABLE_2 = {
    "vgg19-truncated": {-8: (0.686, 8.068), -6: (0.697, 127.106), -4: (0.667, 9.796), -2: (0.584, 1.996),
                        0: (0.293, 1.0596), 2: (0.298, 1.0), 4: (0.3, 1.0), 6: (0.301, 1.0)},
    "scattering": {-8: (0.436, 3.83e-4), -6: (0.542, 11.114), -4: (0.618, 26.88), -2: (0.514, 5.518),
                   0: (0.299, 1.0), 2: (0.297, 1.0), 4: (0.298, 1.0), 6: (0.299, 1.0)},
}  # fmt: skip
N_FOLDS = 5
ROWS_AT_ONCE = 8192


class Sizes(NamedTuple):
    """How much is sampled."""

    n_components: int = 1024
    training: int = 20_000
    validation: int = 10_000
    scoring: int = 2000
    test: int = 4000


def run(study: Study) -> None:
    if study.quick:
        bank = {"name": "scattering", "J": 2, "L": 3}
        selection = {"method": "ccm", "n_features": 16, "pixels": 400}
        segmenter = paper_recipe(bank, selection=selection, training={"pixels": 1000})
        sizes = Sizes(n_components=64, training=400, validation=300, scoring=100, test=500)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "made-up"
            write_made_up(folder, 6)
            for n_train in (1, 3):
                one(study, folder, "quick", n_train, 0, segmenter, sizes)
        return
    banks = {
        "vgg19-truncated": {
            "name": "vgg19",
            "weights": study.weight("vgg19"),
            "preprocessing": "caffe",
            "pyramid": [1],
        },
        "scattering": {"name": "scattering", "J": [1, 2, 3], "L": 8},
    }
    for seed, name, bank, n_train in itertools.product(
        range(5), ("kvasir_seg_256", "dsb2018_stained"), banks, (5, 15)
    ):
        one(study, study.folder(name), bank, n_train, seed, paper_recipe(banks[bank]), Sizes())


def one(
    study: Study, folder: Path, bank: str, n_train: int, seed: int, segmenter: Segmenter, sizes: Sizes
) -> None:
    """Measure the rules on one draw of training images."""

    def measured() -> dict[str, Any]:
        train, test = split(folder, seed, n_train)
        task = read_task(load_pairs(folder / "images", folder / "masks"), train, test, segmenter, seed, sizes)
        return {"test": test, "grids": {name: measure(view, gammas) for name, view, gammas in views(task)}}

    study.row({"set": folder.name, "bank": bank, "n_train": n_train, "seed": seed}, measured)


def paper_recipe(bank: Mapping[str, Any], **sections: Mapping[str, Any]) -> Segmenter:
    """Build the recipe of paper 004 with some bank, and changed sections of options."""
    recipe = {
        section: options
        for section, options in DEFAULT_METHODS["segkit-paper"].items()
        if section not in ("kind", "title")
    }
    changed = {section: recipe.get(section, {}) | options for section, options in sections.items()}
    options = recipe | changed | {"bank": bank}
    return Config.load(None, [f"{section}={json.dumps(found)}" for section, found in options.items()]).build()


@dataclass(frozen=True, eq=False)
class Task:
    """Kept channels of the training pixels, and of labelled test pixels with the image that each is of."""

    X: NDArray[np.float32]
    drawn: PixelSample
    fold: NDArray[np.intp]
    test_features: NDArray[np.float32]
    test_label: NDArray[Any]
    test_image: NDArray[np.intp]
    seed: int
    sizes: Sizes


def read_task(
    dataset: Dataset, train: Sequence[str], test: Sequence[str], segmenter: Segmenter, seed: int, sizes: Sizes
) -> Task:
    """Select channels and sample pixels, as `Segmenter.fit` does with this seed."""
    images, ids = _pick(dataset, train)
    rng = np.random.default_rng(seed)
    selection = draw_pixels(ids, 2, segmenter.selection_pixels, rng)
    drawn = draw_pixels(ids, 2, sizes.training, rng)
    bank = clone(segmenter.bank).fit(images)
    to_select, X = sample(bank, images, [selection, drawn])
    selector = clone(segmenter.selector).set_params(random_state=seed)
    kept = selector.fit(to_select, selection.label).get_support(indices=True)
    fold = assign_folds(drawn, [mask.shape for mask in ids], N_FOLDS)
    pixels = _test_pixels(bank, kept, *_pick(dataset, test), seed, sizes.test)
    features, labels = zip(*pixels, strict=True)
    image = np.repeat(np.arange(len(test)), [len(label) for label in labels])
    return Task(X[:, kept], drawn, fold, np.concatenate(features), np.concatenate(labels), image, seed, sizes)


def sample(
    bank: FilterBank, images: Sequence[NDArray[np.float32]], draws: Sequence[PixelSample]
) -> list[NDArray[np.float32]]:
    """Features, all channels, of several draws of pixels."""
    parts: list[list[NDArray[np.float32]]] = [[] for _ in draws]
    for index, image in enumerate(images):
        stacks = bank.maps(image)
        for part, drawn in zip(parts, draws, strict=True):
            mine = drawn.of_image(index)
            part.append(sample_maps(stacks, drawn.row[mine], drawn.col[mine]))
    return [np.concatenate(part) for part in parts]


def _pick(dataset: Dataset, stems: Sequence[str]) -> tuple[list[NDArray[np.float32]], list[NDArray[Any]]]:
    """Images and class ids of some stems."""
    places = [dataset.stems.index(stem) for stem in stems]
    ids = [dataset.label_map.encode(dataset.masks[place]) for place in places]
    return [dataset.images[place] for place in places], ids


def _test_pixels(
    bank: FilterBank,
    kept: NDArray[np.intp],
    images: Sequence[NDArray[np.float32]],
    ids: Sequence[NDArray[Any]],
    seed: int,
    n_pixels: int,
) -> Iterator[tuple[NDArray[np.float32], NDArray[Any]]]:
    """Features and class ids of labelled pixels of each test image, the same ones for every bank."""
    rng = np.random.default_rng(seed)
    for image, mask in zip(images, ids, strict=True):
        labelled = np.flatnonzero(mask != UNLABELLED)
        some = rng.choice(labelled, min(n_pixels, labelled.size), replace=False)
        row, col = np.divmod(some, mask.shape[1])
        yield bank.sample(image, row, col, kept), mask[row, col]


def views(task: Task) -> Iterator[tuple[str, Task, NDArray[np.float64]]]:
    """Features as they are and standardised, each with its grid of bandwidths."""
    yield "raw", task, RAW_GAMMAS
    scaler = StandardScaler().fit(task.X, sample_weight=task.drawn.weight)
    X = scaler.transform(task.X)
    gammas = MULTIPLES * median_gamma(X, random_state=task.seed)
    yield "standardised", replace(task, X=X, test_features=scaler.transform(task.test_features)), gammas


def scores_of(gammas: NDArray[np.float64], task: Task) -> dict[str, Any]:
    """Find the MMD of every bandwidth, on as many rows of each class."""
    start = time.process_time()
    order = np.random.default_rng(task.seed).permutation(len(task.X))
    per_class = task.sizes.scoring // 2
    rows = np.concatenate([order[task.drawn.label[order] == label][:per_class] for label in (0, 1)])
    grams = gram_matrices([Gaussian(gamma) for gamma in gammas.tolist()], task.X[rows])
    scores = [mmd(K, task.drawn.label[rows]) for K in grams]
    return {"scores": scores, "seconds": time.process_time() - start}


def validate(features: Any, task: Task) -> dict[str, Any]:
    """Cross-validate a kernel: folds are images, or blocks of a single image."""
    start = time.process_time()
    some = np.random.default_rng(task.seed).permutation(len(task.X))[: task.sizes.validation]
    decisions = _held_out_decisions(features.transform(task.X[some]), task, some)
    is_decided = ~np.isnan(decisions)
    decision, drawn = decisions[is_decided], task.drawn.subset(some[is_decided])
    threshold = best_threshold(decision, drawn.label, drawn.weight, drawn.image)
    found = {
        name: float(image_iou(decision > cut, drawn.label, drawn.weight, drawn.image).mean())
        for name, cut in (("held out", threshold), ("zero", 0.0))
    }
    return {"iou": found, "threshold": threshold, "seconds": time.process_time() - start}


def _held_out_decisions(Z: NDArray[np.float32], task: Task, some: NDArray[np.intp]) -> NDArray[np.float64]:
    """Decisions of each fold by a classifier of the others, NaN where those lack a class."""
    fold, drawn = task.fold[some], task.drawn.subset(some)
    decisions = np.full(len(Z), np.nan)
    for index in range(task.fold.max() + 1):
        others = fold != index
        if np.unique(drawn.label[others]).size < 2:
            continue
        # C multiplies a sum over pixels: fewer pixels, larger C, the same lambda of eq. 7.17
        svm = LinearSVM(C=len(task.X) / np.count_nonzero(others), tol=1e-2)
        svm.fit(Z[others], drawn.label[others], drawn.weight[others])
        decisions[~others] = svm.decision_function(Z[~others])
    return decisions


def test_iou(features: Any, task: Task, threshold: float) -> dict[str, NDArray[np.float64]]:
    """Mean IoU of each test image, with the threshold of the held-out pixels and with the sign (eq. 7.18)."""
    svm = LinearSVM(tol=1e-3).fit(features.transform(task.X), task.drawn.label, task.drawn.weight)
    blocks = np.array_split(task.test_features, -(-len(task.test_features) // ROWS_AT_ONCE))
    decision = np.concatenate([svm.decision_function(features.transform(block)) for block in blocks])
    weight = np.ones(len(decision))
    return {
        name: image_iou(decision > cut, task.test_label, weight, task.test_image)
        for name, cut in (("held out", threshold), ("zero", 0.0))
    }


def image_iou(
    guess: NDArray[np.bool_], label: NDArray[Any], weight: NDArray[np.float64], image: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Mean IoU over two classes (eq. 8.1) of each image, from weighted pixels."""
    images, place = np.unique(image, return_inverse=True)
    counts: NDArray[Any] = np.zeros((len(images), 2, 2))
    np.add.at(counts, (place, label.astype(np.intp), guess.astype(np.intp)), weight)
    return np.asarray(np.nanmean(iou_of(counts), axis=1))


def measure(task: Task, gammas: NDArray[np.float64]) -> dict[str, Any]:
    """Score, cross-validate and test every bandwidth of a grid, then let each rule choose."""
    options: dict[str, Any] = {"n_components": task.sizes.n_components, "random_state": task.seed}
    scored = scores_of(gammas, task)
    models = [RandomFourierFeatures(Gaussian(gamma), **options).fit(task.X) for gamma in gammas.tolist()]
    validated = [validate(model, task) for model in models]
    tested = [
        test_iou(model, task, found["threshold"]) for model, found in zip(models, validated, strict=True)
    ]
    mixture = MixtureRFF(gammas=gammas, max_samples=task.sizes.scoring, **options)
    mixture.fit(task.X, task.drawn.label)
    mixed = test_iou(mixture, task, validate(mixture, task)["threshold"])

    def choice(rule: str, threshold: str, gamma: float | None, seconds: float, iou: Any) -> dict[str, Any]:
        found = {"rule": rule, "threshold": threshold, "gamma": gamma, "seconds": seconds}
        return found | {"iou": iou[threshold].round(5).tolist()}

    chosen = []
    for threshold in ("held out", "zero"):
        cv = {
            "scores": [found["iou"][threshold] for found in validated],
            "seconds": sum(found["seconds"] for found in validated),
        }
        for rule, found in {"cv": cv, "mmd": scored}.items():
            best = int(np.argmax(found["scores"]))
            chosen.append(choice(rule, threshold, float(gammas[best]), found["seconds"], tested[best]))
        chosen.append(choice("mixture", threshold, None, scored["seconds"], mixed))
    return {"chosen": chosen}


def bandwidths(rows: list[Row]) -> str:
    """Make the table: rules by grid and threshold, every set alike; intervals resample seeds and test images."""
    found = flat(rows)
    lines = []
    for grid, threshold in itertools.product(("raw", "standardised"), ("held out", "zero")):
        units = [
            (row, {one["rule"]: one for one in row["grids"][grid]["chosen"] if one["threshold"] == threshold})
            for row in found
        ]
        means = [
            np.mean([np.mean(rules[rule]["iou"]) for _, rules in units]) for rule in ("cv", "mmd", "mixture")
        ]
        of_set: dict[str, list[Any]] = defaultdict(list)
        for row, rules in units:
            scores = zip(rules["mmd"]["iou"], rules["cv"]["iou"], row["test"], strict=True)
            of_set[row["set"]] += [(*score, row["seed"]) for score in scores]
        gap = compare_pooled([tuple(zip(*own, strict=True)) for own in of_set.values()])
        same = np.mean([rules["cv"]["gamma"] == rules["mmd"]["gamma"] for _, rules in units])
        ratios = [rules["cv"]["seconds"] / rules["mmd"]["seconds"] for _, rules in units]
        lines.append(
            [
                grid,
                threshold,
                *(f"{mean:.3f}" for mean in means),
                signed(gap.difference, gap.interval),
                f"{100 * same:.0f} %",
                f"{np.median(ratios):.0f} ({min(ratios):.0f} to {max(ratios):.0f})",
            ]
        )
    header = ["features", "threshold", "cross-validation", "MMD", "mixture by MMD"]
    header += ["MMD less cross-validation", "same bandwidth", "times faster"]
    sets, n_seeds = sorted({row["set"] for row in found}), len({row["seed"] for row in found})
    told = f"{' and '.join(sets)}, VGG19 and scattering, 5 and 15 images, {n_seeds} seeds."
    return f"{markdown_table(header, lines)}\n{told}"


def bandwidths_one_by_one(rows: list[Row]) -> str:
    """Make the paper's Table 2: IoU of cross-validation and scaled squared discrepancy at each bandwidth, raw features."""
    found = flat(rows)
    lines = []
    for place, gamma in enumerate(RAW_GAMMAS):
        cells: dict[str, list[str]] = {"cv_iou": [], "scaled_biased": []}
        for bank in TABLE_2:
            own = [row["grids"]["raw"] for row in found if row["bank"] == bank]
            paper = TABLE_2[bank].get(round(math.log10(gamma)))
            for name, digits, printed in zip(cells, (3, 1), paper or (None, None), strict=True):
                of_rows = [grid[name] if name == "cv_iou" else grid["scores"][name] for grid in own]
                told = f"{np.mean([values[place] for values in of_rows]):.{digits}f}"
                cells[name].append(told if printed is None else f"{told}, paper {printed:g}")
        lines.append([f"10^{math.log10(gamma):.0f}", *cells["cv_iou"], *cells["scaled_biased"]])
    header = [f"{score}, {bank}" for score in ("IoU", "discrepancy") for bank in ("VGG19", "scattering")]
    return markdown_table(["gamma", *header], lines)


TABLES = {"bandwidths": bandwidths, "bandwidths_one_by_one": bandwidths_one_by_one}
