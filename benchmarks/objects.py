"""Objects found after training on 1 to 15 images: segkit's splitting beside components, a fixed watershed and a forest.

    python -m benchmarks.objects --data DATA [--sets ...] [--train-sizes ...] [--seeds N] [--quick] [--out FOLDER]

DATA holds a folder for each set with images/, masks/ and instances/, and groups.csv where images belong together. The
default recipe is trained once on each split, with its annotated objects; all methods but the forest share its predicted
masks. "Class masks only" learns the splitting from regions, as if no object had been numbered. The fixed watershed is
that of scikit-image's documentation: distance to the background, peaks some way apart, watershed. "Watershed" fills
holes first, and its peaks are at least a typical radius apart: of several forms the best on the test images of the first
split of dsb2018_stained with five images. "Watershed-half" fills none, and half a radius will do. The typical radius is
that of the annotated training objects. The forest's masks are split by "watershed".

Each run is kept in objects-SET.json when it is done, so that a cut measurement goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from benchmarks.common import digest_sources, result_path
from benchmarks.objects_speed import draw
from segkit._files import atomic
from segkit.baselines import PixelForest
from segkit.benchmark import few_shot_split
from segkit.benchmark.machine import machine
from segkit.benchmark.protocol import read_groups
from segkit.benchmark.reading import read_stems
from segkit.errors import SegkitError
from segkit.evaluation.objects import ObjectScores, score_objects
from segkit.features import MultiscaleBank
from segkit.images import read_mask, write_image, write_mask
from segkit.objects.watershed import connected_components, fixed_watershed
from segkit.segmentation.objects import learn_from_regions
from segkit.segmentation.segmenter import Segmenter

SETS = ("dsb2018_stained", "monuseg", "usiigaci_phase")
METHODS = ("components", "watershed", "watershed-half", "segkit", "segkit-class-masks", "forest-watershed")
# What a test image is stored as: all scores follow from it.
COUNTS = ("n_true", "n_predicted", "tp", "n_matched", "matched_iou", "shared", "union")
LabelImage = NDArray[np.integer[Any]]
Build = Callable[[int], Any]


class Runs:
    """Finished runs of one set, a line each.

    Parameters
    ----------
    path : Path
        The result file.
    groups : mapping of str to str
        What each image belongs to; empty if images are alone.
    """

    def __init__(self, path: Path, groups: Mapping[str, str]) -> None:
        self.path = path
        known = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"machines": [], "runs": []}
        )
        self.header: dict[str, Any] = {
            "name": path.stem,
            "images": f"of each test image: {', '.join(COUNTS)}; tp at IoU 0.5, 0.6, 0.7, 0.8, 0.9",
            "groups": dict(groups),
            "machines": known["machines"],
        }
        self.runs: list[dict[str, Any]] = known["runs"]

    def holds(self, n_train: int, seed: int) -> bool:
        """Tell whether a run is finished."""
        return any((run["n_train"], run["seed"]) == (n_train, seed) for run in self.runs)

    def add(self, run: dict[str, Any]) -> None:
        """Add a run, and write all."""
        here, machines = machine(), self.header["machines"]
        if here not in machines:
            machines.append(here)
        self.runs.append({**run, "machine": machines.index(here), "sources": digest_sources()})
        lines = ",\n".join(json.dumps(run) for run in self.runs)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(self.path) as temporary:
            temporary.write_text(
                json.dumps(self.header)[:-1] + f', "runs": [\n{lines}\n]}}\n', encoding="utf-8"
            )


def filled_watershed(mask: NDArray[np.bool_], radius: float) -> LabelImage:
    """Split a mask, holes filled, by peaks at least a radius apart."""
    return fixed_watershed(ndimage.binary_fill_holes(mask), radius)


def counts_of(scores: ObjectScores, stems: Sequence[str]) -> dict[str, list[Any]]:
    """Give the counts of each image."""
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


def image_scores_of(result: dict[str, Any]) -> dict[tuple[str, int], dict[str, NDArray[Any]]]:
    """Give the scores of each image in each split, by method and number of training images.

    Every value is an array over the same images: scores, number of true objects, seed, and the cluster of images that
    belong together. No image of these sets is without objects.
    """
    found: dict[tuple[str, int], dict[str, list[Any]]] = {}
    for run in result["runs"]:
        for method, images in run["methods"].items():
            scores = scores_of(images)
            columns = {
                "ap_50": scores.image_ap[:, 0],
                "mean_ap": scores.image_ap.mean(axis=1),
                "panoptic_quality": scores.image_panoptic_quality,
                "aggregated_jaccard": scores.image_aggregated_jaccard,
                "absolute_count_error": np.abs(scores.n_predicted - scores.n_true),
                "n_true": scores.n_true,
                "seed": np.full(len(images), run["seed"]),
                "cluster": np.array([result["groups"].get(stem, stem) for stem in images]),
            }
            own = found.setdefault((method, run["n_train"]), {name: [] for name in columns})
            for name, column in columns.items():
                own[name].append(column)
    return {
        key: {name: np.concatenate(columns) for name, columns in own.items()} for key, own in found.items()
    }


def run_split(
    folder: Path, train: Sequence[str], test: Sequence[str], seed: int, build: Build, build_forest: Build
) -> dict[str, Any]:
    """Train on one split, and score every method on its test images."""
    pairs = read_stems(folder / "images", folder / "masks", [*train, *test])
    images = {stem: image for stem, image, _ in pairs}
    masks = {stem: (mask > 0).astype(np.uint8) for stem, _, mask in pairs}
    truths = {stem: read_mask(folder / "instances" / f"{stem}.png")[0] for stem in images}
    lesson = [images[stem] for stem in train], [masks[stem] for stem in train]
    start = time.perf_counter()
    segmenter = build(seed).fit(*lesson, instances=[truths[stem] for stem in train])
    fitted = time.perf_counter()
    forest = build_forest(seed).fit(*lesson)
    forest_seconds = time.perf_counter() - fitted
    learnt, from_regions = segmenter.objects_, learn_from_regions(lesson[1])
    radius = learnt.splitter.radius
    found: dict[str, list[LabelImage]] = {name: [] for name in METHODS}
    predict_seconds = []
    for stem in test:
        began = time.perf_counter()
        labels, mask, probability = segmenter.predict_objects(images[stem], return_masks=True)
        predict_seconds.append(time.perf_counter() - began)
        mask, foreground = mask > 0, 1 - probability[:, :, 0]
        found["components"].append(connected_components(mask))
        found["watershed"].append(filled_watershed(mask, radius))
        found["watershed-half"].append(fixed_watershed(mask, radius / 2))
        found["segkit"].append(labels)
        found["segkit-class-masks"].append(from_regions.splitter.split(mask, probability=foreground))
        found["forest-watershed"].append(filled_watershed(forest.predict(images[stem]) > 0, radius))
    scored = {name: score_objects([truths[stem] for stem in test], labels) for name, labels in found.items()}
    return {
        "splitter": learnt.splitter.to_dict(),
        "held_out": learnt.scores.to_dict() if learnt.scores else None,
        "class_masks_splitter": from_regions.splitter.to_dict(),
        "fit_seconds": round(fitted - start, 2),
        "objects_seconds": segmenter.summary_.seconds["objects"],
        "forest_fit_seconds": round(forest_seconds, 2),
        "predict_seconds": round(float(np.mean(predict_seconds)), 3),
        "methods": {name: counts_of(scores, test) for name, scores in scored.items()},
    }


def measure(
    folder: Path,
    path: Path,
    train_sizes: Sequence[int],
    seeds: int,
    build: Build = lambda seed: Segmenter(random_state=seed),
    build_forest: Build = lambda seed: PixelForest(random_state=seed),
) -> None:
    """Run what is missing of one set."""
    stems = [file.stem for file in (folder / "images").iterdir()]
    listed = folder / "groups.csv"
    groups = read_groups(listed, stems) if listed.exists() else {}
    runs = Runs(path, groups)
    for n_train in train_sizes:
        for seed in range(seeds):
            if runs.holds(n_train, seed):
                continue
            split = few_shot_split(stems, n_train, seed, groups=groups or None)
            found = run_split(folder, split.train, split.test, seed, build, build_forest)
            runs.add({"n_train": n_train, "seed": seed, **found})
            told = ", ".join(
                f"{name} {np.nanmean(scores_of(images).image_ap[:, 0]):.3f}"
                for name, images in found["methods"].items()
            )
            print(
                f"{folder.name}, {n_train} images, seed {seed} ({found['fit_seconds']:.0f} s): {told}",
                flush=True,
            )


def write_made_up(folder: Path) -> None:
    """Write four pictures of cells, their masks and their objects, for a quick run."""
    for seed in range(4):
        image, labels = draw(100, 15, seed)
        write_image(folder / "images" / f"{seed}.png", image)
        write_mask(folder / "masks" / f"{seed}.png", 255 * (labels > 0).astype(np.uint8))
        write_mask(folder / "instances" / f"{seed}.png", labels.astype(np.uint16))


def measure_quickly(out: Path) -> None:
    """Measure small models on made-up pictures."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "made-up"
        write_made_up(folder)
        measure(
            folder,
            out / "objects-quick.json",
            [2],
            1,
            lambda seed: Segmenter(
                MultiscaleBank(), selection_pixels=400, training_pixels=1000, random_state=seed
            ),
            lambda seed: PixelForest(n_estimators=5, training_pixels=500, random_state=seed),
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--train-sizes", type=int, nargs="+", default=[1, 2, 3, 5, 15])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="made-up images, small models: does it run?")
    parser.add_argument("--out", type=Path, help="folder of the result files")
    arguments = parser.parse_args()
    if not (arguments.data or arguments.quick):
        parser.error("--data: needed, or --quick")
    out = result_path(arguments)
    try:
        if arguments.quick:
            measure_quickly(out)
        for name in () if arguments.quick else arguments.sets:
            measure(
                arguments.data / name, out / f"objects-{name}.json", arguments.train_sizes, arguments.seeds
            )
    except SegkitError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
