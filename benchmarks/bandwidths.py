"""The bandwidth of a Gaussian kernel by cross-validation and by scores that train nothing (004 Table 2).

    python -m benchmarks.bandwidths --data DATA --vgg19 VGG19.npz [--quick] [--out FILE]

DATA holds a folder for each set with images/ and masks/; splits are those of `benchmarks.common.split`. Channels
and training pixels are drawn and selected as by `segkit.Segmenter`, once for each set, bank, number of
images and seed; every bandwidth then sees the same features. The result file holds, for each bandwidth, its
scores, its cross-validated and its test IoU, and for each rule what it chose, in how many seconds, and the
test IoU of every image. A run that was cut goes on where it stopped; remove the file to start anew.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from benchmarks.common import CONFIGS, PAPER_RECIPE, markdown_table, result_path, split, with_interval
from benchmarks.selection_common import Records
from benchmarks.tables.common import DATA, MissingDataError
from segkit import Segmenter
from segkit.classifier.svm import LinearSVM
from segkit.cli.phantom import make_demo_set
from segkit.config.schema import Config
from segkit.evaluation.metrics import iou_of
from segkit.evaluation.statistics import compare_pooled
from segkit.features import FilterBank
from segkit.features.base import sample_maps
from segkit.images import UNLABELLED, Dataset, load_pairs, write_image, write_mask
from segkit.images.sampling import PixelSample, assign_folds, draw_pixels
from segkit.kernels import (
    Gaussian,
    MixtureRFF,
    RandomFourierFeatures,
    alignment,
    median_gamma,
    mmd,
    mmd_squared,
    power_criterion,
)
from segkit.kernels.base import gram_matrices
from segkit.segmentation.threshold import best_threshold

# The paper's grid, for maps as they are, and the library's, in units of the median heuristic.
RAW_GAMMAS = np.logspace(-10, 6, 9)
MULTIPLES = np.logspace(-6, 6, 13, base=2)
CRITERIA: dict[str, Callable[..., float]] = {
    "mmd": mmd,
    "scaled_biased": partial(mmd_squared, statistic="scaled_biased"),
    "centered_alignment": partial(alignment, centered=True),
    "power": power_criterion,
}
RULES = ("cv", *CRITERIA, "mixture")
N_FOLDS = 5
ROWS_AT_ONCE = 8192


class Sizes(NamedTuple):
    """How much is sampled."""

    n_components: int = 1024
    training: int = 20_000
    validation: int = 10_000
    scoring: int = 2000
    test: int = 4000


QUICK = [
    "bank={name: scattering, J: 2, L: 3, tile: 32}",
    "selection={method: ccm, n_features: 16, pixels: 400}",
    "training.pixels=1000",
]
QUICK_SIZES = Sizes(n_components=64, training=400, validation=300, scoring=100, test=500)


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


def scores_of(criterion: Callable[..., float], gammas: NDArray[np.float64], task: Task) -> dict[str, Any]:
    """Score every bandwidth on as many rows of each class."""
    start = time.process_time()
    order = np.random.default_rng(task.seed).permutation(len(task.X))
    per_class = task.sizes.scoring // 2
    rows = np.concatenate([order[task.drawn.label[order] == label][:per_class] for label in (0, 1)])
    grams = gram_matrices([Gaussian(gamma) for gamma in gammas.tolist()], task.X[rows])
    scores = [float(criterion(K, task.drawn.label[rows])) for K in grams]
    return {"scores": scores, "seconds": time.process_time() - start}


def validate(features: Any, task: Task) -> dict[str, Any]:
    """Cross-validate a kernel: folds are images, or blocks of a single image."""
    start = time.process_time()
    some = np.random.default_rng(task.seed).permutation(len(task.X))[: task.sizes.validation]
    decisions = _held_out_decisions(features.transform(task.X[some]), task, some)
    judged = ~np.isnan(decisions)
    decision, drawn = decisions[judged], task.drawn.subset(some[judged])
    threshold = best_threshold(decision, drawn.label, drawn.weight, drawn.image)
    right = (decision > 0) == (drawn.label == 1)
    found = {
        name: float(image_iou(decision > cut, drawn.label, drawn.weight, drawn.image).mean())
        for name, cut in (("held out", threshold), ("zero", 0.0))
    }
    return {
        "iou": found,
        "accuracy": float(np.average(right, weights=drawn.weight)),
        "threshold": threshold,
        "seconds": time.process_time() - start,
    }


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
    scored = {name: scores_of(criterion, gammas, task) for name, criterion in CRITERIA.items()}
    models = [RandomFourierFeatures(Gaussian(gamma), **options).fit(task.X) for gamma in gammas.tolist()]
    validated = [validate(model, task) for model in models]
    tested = [
        test_iou(model, task, found["threshold"]) for model, found in zip(models, validated, strict=True)
    ]
    mixture = MixtureRFF(gammas=gammas, max_samples=task.sizes.scoring, **options)
    mixture.fit(task.X, task.drawn.label)
    mixed = test_iou(mixture, task, validate(mixture, task)["threshold"])

    chosen = []
    for threshold in ("held out", "zero"):
        cv = [found["iou"][threshold] for found in validated]
        seconds = sum(found["seconds"] for found in validated)
        choices = {"cv": {"scores": cv, "seconds": seconds}} | scored
        for rule, choice in choices.items():
            best = int(np.argmax(choice["scores"]))
            entry = {"rule": rule, "threshold": threshold, "gamma": float(gammas[best])}
            chosen.append(
                entry | {"seconds": choice["seconds"], "iou": tested[best][threshold].round(5).tolist()}
            )
        seconds = scored["mmd"]["seconds"]
        chosen.append({"rule": "mixture", "threshold": threshold, "gamma": None, "seconds": seconds,
                       "iou": mixed[threshold].round(5).tolist()})  # fmt: skip
    return {
        "gammas": gammas.tolist(),
        "scores": {name: found["scores"] for name, found in scored.items()},
        "cv_accuracy": [found["accuracy"] for found in validated],
        "cv_iou": [found["iou"]["held out"] for found in validated],
        "cv_iou_zero": [found["iou"]["zero"] for found in validated],
        "test_iou": [float(found["held out"].mean()) for found in tested],
        "test_iou_zero": [float(found["zero"].mean()) for found in tested],
        "mixture_weights": mixture.weights_.tolist(),
        "chosen": chosen,
    }


def gap(pairs: Iterable[tuple[str, float, float, str, int]]) -> dict[str, Any]:
    """Mean difference with its 95 % interval, from set, two IoUs, stem and seed of each test image.

    Stems and seeds are resampled, everything of a stem together; every set counts alike.
    """
    of_set: dict[str, list[tuple[float, float, str, int]]] = defaultdict(list)
    for name, *row in pairs:
        of_set[name].append(tuple(row))
    compared = compare_pooled([tuple(zip(*rows, strict=True)) for rows in of_set.values()])
    return {"value": compared.difference, "interval": list(compared.interval)}


def summarise(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for each set, bank, number of images and grid, then of all sets and banks together."""
    rows = []
    grids = [("raw", "held out"), ("raw", "zero"), ("standardised", "held out"), ("standardised", "zero")]
    for fields in (("set", "bank", "n_train"), ("n_train",), ()):
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        for record in records:
            groups[tuple(record[field] for field in fields)].append(record)
        for key, group in groups.items():
            identity = {"set": "all", "bank": "all", "n_train": "all"} | dict(zip(fields, key, strict=True))
            rows += [
                {**identity, "grid": grid, "threshold": threshold, **_summary(group, grid, threshold)}
                for grid, threshold in grids
            ]
    return rows


def _summary(group: Sequence[dict[str, Any]], grid: str, threshold: str) -> dict[str, Any]:
    """Compare the rules over records: mean IoU, gaps to cross-validation, seconds."""
    units = []
    for record in group:
        entries = [entry for entry in record["grids"][grid]["chosen"] if entry["threshold"] == threshold]
        units.append((record, {entry["rule"]: entry for entry in entries}))
    ratios = [unit["cv"]["seconds"] / unit["mmd"]["seconds"] for _, unit in units]
    return {
        "n_records": len(units),
        "mean_iou": {
            rule: float(np.mean([np.mean(unit[rule]["iou"]) for _, unit in units])) for rule in RULES
        },
        "gap_to_cv": {
            rule: gap(
                (record["set"], ours, theirs, stem, record["seed"])
                for record, unit in units
                for stem, ours, theirs in zip(
                    record["test"], unit[rule]["iou"], unit["cv"]["iou"], strict=True
                )
            )
            for rule in RULES[1:]
        },
        "same_choice": float(np.mean([unit["mmd"]["gamma"] == unit["cv"]["gamma"] for _, unit in units])),
        "seconds": {rule: float(np.mean([unit[rule]["seconds"] for _, unit in units])) for rule in RULES},
        "time_ratio": float(np.median(ratios)),
        "time_ratio_range": [min(ratios), max(ratios)],
    }


def report(records: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str:
    """Write the comparison and the curves in Markdown."""
    where = ["set", "bank", "n_train", "grid", "threshold"]
    header = [*where, "IoU: CV", "MMD", "alignment", "power", "mixture", "MMD less CV", "mixture less CV",
              "same bandwidth", "CV, s", "MMD, s", "times faster"]  # fmt: skip
    rules = ("cv", "mmd", "centered_alignment", "power", "mixture")
    comparison = markdown_table(
        header,
        (
            [
                *(row[name] for name in where),
                *(f"{row['mean_iou'][rule]:.3f}" for rule in rules),
                *(with_interval(**row["gap_to_cv"][rule]) for rule in ("mmd", "mixture")),
                f"{row['same_choice']:.0%}",
                row["seconds"]["cv"],
                row["seconds"]["mmd"],
                f"{row['time_ratio']:.0f}",
            ]
            for row in rows
        ),
    )
    curves = markdown_table(
        ["set", "bank", "n_train", "gamma, raw maps", "CV IoU", "test IoU", "MMD", "n+n-/(n+ + n-) MMD_b^2"],
        _curves(records),
    )
    return f"{comparison}\n{curves}"


def _curves(records: Sequence[dict[str, Any]]) -> Iterator[list[Any]]:
    """Rows of the form of the paper's Table 2, averaged over seeds."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["set"], record["bank"], record["n_train"]].append(record["grids"]["raw"])
    for key, grids in groups.items():
        columns = [
            np.mean(values, axis=0)
            for values in (
                [grid["cv_iou"] for grid in grids],
                [grid["test_iou"] for grid in grids],
                [grid["scores"]["mmd"] for grid in grids],
                [grid["scores"]["scaled_biased"] for grid in grids],
            )
        ]
        for gamma, *values in zip(grids[0]["gammas"], *columns, strict=True):
            yield [*key, f"{gamma:.0e}", *map(float, values)]


def made_up_set(folder: Path) -> None:
    for index, (image, mask) in enumerate(zip(*make_demo_set(6, shape=(64, 96)), strict=True)):
        write_image(folder / "images" / f"{index}.png", image)
        write_mask(folder / "masks" / f"{index}.png", 255 * mask)


def notes(sizes: Sizes) -> list[str]:
    return [
        f"{sizes.n_components:,} random features; {sizes.training:,} training pixels, {sizes.validation:,} of them in "
        f"cross-validation, {sizes.scoring:,} for the other scores; C = 1 times the sum over training pixels.",
        f"Test IoU from {sizes.test:,} pixels (all, if fewer) of each test image, drawn at random, the same for every rule.",
        "threshold: of the decision, the best on held-out pixels (as Segmenter does), or zero (eq. 7.18); "
        "cross-validation chooses by the mean IoU at that threshold.",
        "Seconds are processor seconds of the selection alone, for the whole grid.",
        "Intervals are 95 % bootstrap intervals over seeds and test images.",
    ]


def run_set(
    folder: Path, units: Iterable[tuple[int, str, int]], segmenters: Any, sizes: Sizes, records: Records
) -> None:
    """Measure what is missing of one set: seed, bank and number of training images of each unit."""
    missing = [
        unit
        for unit in units
        if not records.holds(set=folder.name, seed=unit[0], bank=unit[1], n_train=unit[2])
    ]
    if not missing:
        return
    if not (folder / "images").is_dir():
        raise MissingDataError(
            f"no {folder / 'images'}: give the folder that holds {folder.name} with --data"
        )
    dataset = load_pairs(folder / "images", folder / "masks")
    for seed, bank, n_train in missing:
        start = time.process_time()
        train, test = split(folder, seed, n_train)
        task = read_task(dataset, train, test, segmenters(bank), seed, sizes)
        identity = {"set": folder.name, "bank": bank, "n_train": n_train, "seed": seed}
        grids = {name: measure(view, gammas) for name, view, gammas in views(task)}
        seconds = time.process_time() - start
        records.add({**identity, "seconds": seconds, "test": test, "grids": grids})
        print(*identity.values(), f"({seconds:.0f} processor seconds)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA / "data")
    parser.add_argument("--vgg19", type=Path, help="truncated VGG19 weights (Caffe preprocessing)")
    parser.add_argument("--sets", nargs="+", default=["kvasir_seg_256", "dsb2018_stained"])
    parser.add_argument("--banks", nargs="+", default=["vgg19-truncated", "scattering"])
    parser.add_argument("--train-sizes", nargs="+", type=int, default=[5, 15])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="made-up images, a small bank: does it run?")
    parser.add_argument("--out", type=Path, help="result file, a .md beside it")
    arguments = parser.parse_args()

    def segmenter(bank: str) -> Segmenter:
        if bank == "quick":
            return Config.load(None, [*PAPER_RECIPE, *QUICK]).build()
        weights = [f"bank.weights={arguments.vgg19}"] if bank == "vgg19-truncated" else []
        return Config.load(CONFIGS / f"{bank}.yaml", [*PAPER_RECIPE, *weights]).build()

    sizes = QUICK_SIZES if arguments.quick else Sizes()
    identity = ("set", "bank", "n_train", "seed")
    settings = {
        **sizes._asdict(),
        "gammas": RAW_GAMMAS.tolist(),
        "multiples": MULTIPLES.tolist(),
        "n_folds": N_FOLDS,
    }
    records = Records(
        result_path(arguments, "bandwidths.json"),
        identity,
        notes(sizes),
        settings,
        resume=not arguments.quick,
    )
    if arguments.quick:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "made-up"
            made_up_set(folder)
            run_set(folder, [(0, "quick", 1), (0, "quick", 3)], segmenter, sizes, records)
    else:
        if "vgg19-truncated" in arguments.banks and arguments.vgg19 is None:
            parser.error("--vgg19 FILE is needed for the bank vgg19-truncated")
        for seed, name in itertools.product(range(arguments.seeds), arguments.sets):
            units = [(seed, bank, n) for bank in arguments.banks for n in arguments.train_sizes]
            try:
                run_set(arguments.data / name, units, segmenter, sizes, records)
            except MissingDataError as error:
                raise SystemExit(str(error)) from error
    rows = summarise(records.records)
    records.write(summary=rows)
    records.report(report(records.records, rows))


if __name__ == "__main__":
    main()
