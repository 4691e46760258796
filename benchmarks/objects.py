"""Objects found after training on 1 and 5 images: segkit's splitting beside components, a fixed watershed and a forest.

    python -m benchmarks objects --data DATA [--sets ...] [--train-sizes ...] [--seeds N] [--weights WEIGHTS [--work WORK]
        [--steps N]]

DATA holds a folder for each set with images/, masks/ and instances/, and groups.csv where images belong together. The
default recipe is trained once on each split, with its annotated objects; all methods but the forest share its predicted
masks. "Class masks only" learns the splitting from regions, as if no object had been numbered. The fixed watershed is
that of scikit-image's documentation: distance to the background, peaks some way apart, watershed. "Watershed" fills
holes first, and its peaks are at least a typical radius apart: of several forms the best on the test images of the first
split of dsb2018_stained with five images. "Watershed-half" fills none, and half a radius will do. The typical radius is
that of the annotated training objects. The forest's masks are split by "watershed".

With --weights, a folder that holds those of MobileNetV2, the networks of `configs/tuned.yaml` are trained on each split
instead, which learn the depth in objects beside the classes. They have rows of their own. With --work networks are kept: a
run that was cut goes on, and its `fit_seconds` are those since. With --steps they take N steps: rows of many splits, for the
coverage of the intervals of counts.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from benchmarks.markdown import broken, difference_of, markdown_table, with_interval
from benchmarks.rows import Row, Study
from benchmarks.tuned import at_once
from segkit.baselines import PixelForest
from segkit.benchmark import few_shot_split
from segkit.benchmark.object_splitting import connected_components, fixed_watershed, read_annotated
from segkit.benchmark.protocol import read_groups
from segkit.cli.cells import make_cell_set
from segkit.config import Config, shipped
from segkit.errors import InputError
from segkit.evaluation.object_scores import ObjectScores, score_objects
from segkit.evaluation.statistics import bootstrap_interval, compare
from segkit.images import read_mask, write_image, write_mask
from segkit.segmentation.object_model import learn_from_regions
from segkit.segmentation.segmenter import Segmenter

SETS = ("dsb2018_stained", "monuseg", "usiigaci_phase")
# What a test image is stored as: all scores follow from it.
COUNTS = ("n_true", "n_predicted", "tp", "n_matched", "matched_iou", "shared", "union")
# Numbers of training images.
SIZES = (1, 5)
LabelImage = NDArray[np.integer[Any]]


def filled_watershed(mask: NDArray[np.bool_], radius: float) -> LabelImage:
    """Split a mask, holes filled, by peaks at least a radius apart."""
    return fixed_watershed(ndimage.binary_fill_holes(mask), radius)


def counts_of(scores: ObjectScores, stems: Sequence[str]) -> dict[str, list[Any]]:
    """Return the counts of each image."""
    return {
        stem: [
            value.tolist() if isinstance(value, np.ndarray) else round(value.item(), 6)
            for value in (getattr(scores, name)[index] for name in COUNTS)
        ]
        for index, stem in enumerate(stems)
    }


def scores_of(images: Mapping[str, Sequence[Any]]) -> ObjectScores:
    """Restore the scores of a run from the counts of its images."""
    columns = zip(*images.values(), strict=True)
    counts = {name: np.array(column) for name, column in zip(COUNTS, columns, strict=True)}
    return ObjectScores(thresholds=(0.5, 0.6, 0.7, 0.8, 0.9), **counts)


def image_scores_of(rows: Sequence[Row]) -> dict[tuple[str, int], dict[str, NDArray[Any]]]:
    """Arrange the scores of each image in each split of a set, by method and number of training images.

    Every value is an array over the same images: scores, number of true objects, seed, and the cluster of images that
    belong together. No image of these sets is without objects.
    """
    found: dict[tuple[str, int], dict[str, list[Any]]] = {}
    for row in rows:
        groups = row["figures"].get("groups", {})
        for method, images in row["figures"]["methods"].items():
            scores = scores_of(images)
            columns = {
                "ap_50": scores.image_ap[:, 0],
                "mean_ap": scores.image_ap.mean(axis=1),
                "panoptic_quality": scores.image_panoptic_quality,
                "aggregated_jaccard": scores.image_aggregated_jaccard,
                "absolute_count_error": np.abs(scores.n_predicted - scores.n_true),
                "n_true": scores.n_true,
                "n_predicted": scores.n_predicted,
                "seed": np.full(len(images), row["where"]["seed"]),
                "cluster": np.array([groups.get(stem, stem) for stem in images]),
            }
            own = found.setdefault((method, row["where"]["n_train"]), {name: [] for name in columns})
            for name, column in columns.items():
                own[name].append(column)
    return {
        key: {name: np.concatenate(columns) for name, columns in own.items()} for key, own in found.items()
    }


def run_split(
    folder: Path,
    train: Sequence[str],
    test: Sequence[str],
    segmenter: Segmenter,
    forest: PixelForest | None = None,
) -> dict[str, Any]:
    """Train on one split, and score every method on its test images; without a forest those of trained networks."""
    read = read_annotated(folder / "images", folder / "masks", [*train, *test])
    images = {one.stem: one.image for one in read}
    masks = {one.stem: (one.mask > 0).astype(np.uint8) for one in read}
    truths = {stem: read_mask(folder / "instances" / f"{stem}.png")[0] for stem in images}
    lesson = [images[stem] for stem in train], [masks[stem] for stem in train]
    start = time.perf_counter()
    segmenter.fit(*lesson, instances=[truths[stem] for stem in train])
    fitted = time.perf_counter()
    if forest is not None:
        forest.fit(*lesson)
    forest_seconds = time.perf_counter() - fitted
    learnt, from_regions = segmenter.objects_, learn_from_regions(lesson[1])
    radius = learnt.splitter.radius
    found: dict[str, list[LabelImage]] = defaultdict(list)
    intervals, predict_seconds = {}, []
    for stem in test:
        began = time.perf_counter()
        segmented = segmenter.segment(images[stem], objects=True)
        predict_seconds.append(time.perf_counter() - began)
        mask, foreground = segmented.labels > 0, 1 - segmented.probability[:, :, 0]
        intervals[stem] = learnt.count_interval(int(segmented.objects.max()))
        if forest is None:
            found["tuned"].append(segmented.objects)
            found["tuned-watershed"].append(filled_watershed(mask, radius))
            continue
        found["components"].append(connected_components(mask))
        found["watershed"].append(filled_watershed(mask, radius))
        found["watershed-half"].append(fixed_watershed(mask, radius / 2))
        found["segkit"].append(segmented.objects)
        found["segkit-class-masks"].append(from_regions.splitter.split(mask, probability=foreground))
        found["forest-watershed"].append(filled_watershed(forest.predict(images[stem]) > 0, radius))
    scored = {name: score_objects([truths[stem] for stem in test], labels) for name, labels in found.items()}
    return {
        "fit_seconds": round(fitted - start, 2),
        "objects_seconds": segmenter.summary_.seconds["objects"],
        "forest_fit_seconds": round(forest_seconds, 2),
        "predict_seconds": round(float(np.mean(predict_seconds)), 3),
        "count_intervals": intervals,
        "methods": {name: counts_of(scores, test) for name, scores in scored.items()},
    }


def write_made_up(folder: Path) -> None:
    """Write four pictures of cells, their masks and their objects, for a quick run."""
    for index, (image, labels) in enumerate(zip(*make_cell_set(4, shape=(96, 96)), strict=True)):
        write_image(folder / "images" / f"{index}.png", image)
        write_mask(folder / "masks" / f"{index}.png", 255 * (labels > 0).astype(np.uint8))
        write_mask(folder / "instances" / f"{index}.png", labels.astype(np.uint16))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--train-sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--work", type=Path, help="folder that keeps the networks")
    parser.add_argument(
        "--steps", type=int, help="training steps of the networks, for the coverage of counts"
    )


def run(study: Study) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        if study.quick:
            write_made_up(Path(temporary) / "made-up")
            small = {"selection_pixels": 400, "training_pixels": 1000}
            measure(
                study, Path(temporary) / "made-up", [2], 1, small, {"n_estimators": 5, "training_pixels": 500}
            )
            return
        networks = [f"bank.0.banks.0.weights={study.weight('mobilenet_v2')}"] if study.weights else []
        if study.options.steps and not networks:
            raise InputError("--steps without --weights, expected both: steps are those of networks")
        for name in study.sets or SETS:
            sizes, n_seeds, options = study.options.train_sizes, study.seeds or 5, study.options
            measure(
                study,
                study.folder(name),
                sizes,
                n_seeds,
                {},
                {},
                networks,
                options.work,
                options.steps,
            )


def measure(
    study: Study,
    folder: Path,
    train_sizes: Sequence[int],
    n_seeds: int,
    recipe: dict[str, Any],
    forest: dict[str, Any],
    networks: Sequence[str] = (),
    work: Path | None = None,
    steps: int | None = None,
) -> None:
    """Run what is missing of one set."""
    if steps:
        networks = [*networks, f"bank.0.banks.0.n_steps={steps}"]
    stems = [file.stem for file in (folder / "images").iterdir()]
    listed = folder / "groups.csv"
    groups = read_groups(listed, stems) if listed.exists() else {}
    for n_train, seed in itertools.product(train_sizes, range(n_seeds)):

        def split_and_score(n_train: int = n_train, seed: int = seed) -> dict[str, Any]:
            split = few_shot_split(stems, n_train, seed, groups=groups or None)
            models: Any = Segmenter(**recipe, random_state=seed), PixelForest(**forest, random_state=seed)
            if networks:
                models = [Config.load(shipped("tuned"), [*networks, f"seed={seed}"]).build()]
            own = f"{folder.name}-{n_train}-{seed}" + (f"-{steps}" if steps else "")
            state = work and work / f"{own}.training"
            with at_once(state) if networks else nullcontext():
                found = run_split(folder, split.train, split.test, *models)
            return found | ({"groups": {stem: groups[stem] for stem in split.test}} if groups else {})

        where: dict[str, Any] = {"set": folder.name, "n_train": n_train, "seed": seed}
        where |= {"bank": "tuned"} if networks else {}
        where |= {"steps": steps} if steps else {}
        study.row(where, split_and_score)


SPLITTINGS = {
    "segkit": "**segkit**, objects annotated",
    "segkit-class-masks": "**segkit**, class masks only",
    "watershed": "watershed",
    "components": "connected regions",
    "forest-watershed": "pixel forest, watershed",
    "tuned": "**`--config tuned`**, objects annotated",
    "tuned-watershed": "`--config tuned`, watershed",
}


def held_counts(rows: Sequence[Row], method: str) -> list[bool]:
    """Tell of each test image that has an interval of its count whether the interval holds the true one."""
    return [
        interval[0] <= row["figures"]["methods"][method][stem][COUNTS.index("n_true")] <= interval[1]
        for row in rows
        if method in row["figures"]["methods"]
        for stem, interval in row["figures"]["count_intervals"].items()
        if interval is not None
    ]


def objects(rows: list[Row]) -> str:
    """Tabulate the objects found by each method, and segkit's AP, objects annotated, less that of each."""
    header = (
        "set, training images",
        "method",
        "AP at IoU 0.5 (95 % interval)",
        "**segkit**, objects annotated, less it",
        "panoptic quality",
        "aggregated Jaccard",
        "found / true",
        "count error",
        "counts in their 80 % interval",
    )
    table = []
    for name in SETS:
        mine_rows = [row for row in rows if row["where"]["set"] == name and "steps" not in row["where"]]
        by_size = image_scores_of(mine_rows)
        for n_train, method in itertools.product(sorted({size for _, size in by_size}), SPLITTINGS):
            if (method, n_train) not in by_size:
                continue
            found, mine = by_size[method, n_train], by_size["segkit", n_train]
            shared = np.isin(mine["seed"], found["seed"])
            mine = {score: values[shared] for score, values in mine.items()}
            ap, clusters, seeds = found["ap_50"], found["cluster"], found["seed"]
            alone = ", images only" if np.unique(seeds).size == 1 else ""
            cells = [with_interval(float(ap.mean()), bootstrap_interval(ap, clusters, seeds)) + alone, ""]
            if method != "segkit":
                cells[1] = difference_of(compare(mine["ap_50"], ap, clusters, seeds), doubt=True)
            scores = [f"{found[score].mean():.3f}" for score in ("panoptic_quality", "aggregated_jaccard")]
            own = [row for row in mine_rows if row["where"]["n_train"] == n_train]
            held = held_counts(own, method) if method in ("segkit", "tuned") else []
            error = 100 * found["absolute_count_error"].sum() / found["n_true"].sum()
            table.append(
                (
                    f"{name}, {n_train}",
                    SPLITTINGS[method],
                    *map(broken, cells),
                    *scores,
                    f"{found['n_predicted'].sum() / found['n_true'].sum():.2f}",
                    f"{error:.0f} %",
                    f"{100 * np.mean(held):.0f} % of {len(held)}" if held else "",
                )
            )
    return markdown_table(header, table)


def count_coverage(rows: list[Row]) -> str:
    """Tabulate how many counts of networks of fewer steps lie in their interval, and how far off they are."""
    header = (
        "set, training images",
        "steps",
        "splits",
        "images",
        "counts in their 80 % interval (95 % interval)",
        "found / true",
        "count error",
    )
    by_kind = defaultdict(list)
    for row in rows:
        # intervals take four images: a split has one for each test image, or none
        if "steps" in (where := row["where"]) and None not in row["figures"]["count_intervals"].values():
            by_kind[SETS.index(where["set"]), where["n_train"], where["steps"]].append(row)
    table = []
    for (place, n_train, steps), mine in sorted(by_kind.items()):
        found = image_scores_of(mine)["tuned", n_train]
        held = np.array(held_counts(mine, "tuned"), dtype=float)
        low, high = bootstrap_interval(held, found["cluster"], found["seed"])
        n_true = found["n_true"].sum()
        table.append(
            (
                f"{SETS[place]}, {n_train}",
                steps,
                len(mine),
                held.size,
                f"{100 * held.mean():.0f} % ({100 * low:.0f} to {100 * high:.0f} %)",
                f"{found['n_predicted'].sum() / n_true:.2f}",
                f"{100 * found['absolute_count_error'].sum() / n_true:.0f} %",
            )
        )
    return markdown_table(header, table)


TABLES = {"objects": objects, "count_coverage": count_coverage}
