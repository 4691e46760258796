"""What a turn of the image does to its label map: the orbit bank beside networks.

    python -m benchmarks.orbit_segmentation --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz [--quick]

DATA holds a folder for each set with images/ and masks/. A model is trained on five images (the few-shot split,
seed 0) and predicts test images as they are and turned. Within the disc that every turn keeps, less the
halo of the bank, the labels of the turned image are compared with the turned decisions of the image.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from scipy import ndimage

from benchmarks.common import CONFIGS, PAPER_RECIPE, result_path, split, write_result
from segkit import OrbitBank, Segmenter
from segkit.baselines import FCN
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set
from segkit.config.schema import Config
from segkit.evaluation.metrics import score_masks
from segkit.images import load_pairs
from segkit.invariance import Dihedral, Rotation
from segkit.segmentation.base import BaseSegmenter

mpl.use("Agg")
import matplotlib.pyplot as plt

PICTURE = Path(__file__).parents[1] / "docs" / "orbit_segmentation.jpg"
ANGLES = (30.0, 17.0)
RECIPE = (*PAPER_RECIPE, "training.threshold=iou")
N_TEST, N_TURNED = 10, 3
FCN_STEPS = 400
# Pixels whose decision is nearer to the threshold may fall on either side by rounding.
CERTAIN = 1e-5


def methods(vgg19: Path | None, squeezenet: Path | None) -> dict[str, BaseSegmenter]:
    """Segmenters to compare, ours with the recipe of the paper; those of a network need its weights."""
    found: dict[str, BaseSegmenter] = {
        "orbit": Config.load(None, ["bank.name=orbit", *RECIPE]).build(),
        "orbit, one angle": Config.load(None, ["bank={name: orbit, n_angles: 1}", *RECIPE]).build(),
    }
    if vgg19 is not None:
        config, weights = CONFIGS / "vgg19-truncated.yaml", f"bank.weights={vgg19}"
        found["VGG19"] = Config.load(config, [weights, *RECIPE]).build()
        found["VGG19, orbit=d4"] = Config.load(config, [weights, "bank.orbit=d4", *RECIPE]).build()
    if squeezenet is not None:
        found["FCN-8s"] = FCN(
            backbone="squeezenet1_0",
            weights=squeezenet,
            preprocessing="caffe",
            n_hidden=512,
            crop=160,
            max_steps=FCN_STEPS,
            random_state=0,
        )
    return found


def decide(segmenter: BaseSegmenter, image: Any) -> Any:
    """Map that is above 0 where the foreground is."""
    if isinstance(segmenter, Segmenter):
        return segmenter.decision_function(image) - segmenter.threshold_
    return segmenter.predict_proba(image)[:, :, 1] - 0.5


def halo_of(segmenter: BaseSegmenter) -> int:
    """Width of the border that padding reaches; nothing is left of an image without an FCN's, so 0."""
    return segmenter.bank_.halo if isinstance(segmenter, Segmenter) else 0


def turn(array: Any, angle: float, order: int) -> Any:
    turned = ndimage.rotate(array, angle, axes=(1, 0), reshape=False, order=order, mode="mirror")
    return np.clip(turned, 0, 1).astype(np.float32) if order == 3 else turned


def inside(shape: tuple[int, int], halo: int) -> Any:
    rows, cols = (np.arange(size) - (size - 1) / 2 for size in shape)
    return np.hypot(rows[:, None], cols) < min(shape) / 2 - halo - 1


def compare(segmenter: BaseSegmenter, images: list[Any], angle: float) -> dict[str, float]:
    """Share of labels that a turn changes, and IoU of the two foregrounds, away from the border."""
    changed, seen, common, either = 0, 0, 0, 0
    for image in images:
        expected = turn(decide(segmenter, image), angle, 1) > 0
        labels = decide(segmenter, turn(image, angle, 3)) > 0
        kept = inside(labels.shape, halo_of(segmenter))
        changed += int((labels != expected)[kept].sum())
        seen += int(kept.sum())
        common += int((labels & expected)[kept].sum())
        either += int((labels | expected)[kept].sum())
    return {
        "angle": angle,
        "changed_percent": 100 * changed / seen,
        "foreground_iou": common / max(either, 1),
    }


def symmetries(segmenter: BaseSegmenter, images: list[Any]) -> dict[str, Any]:
    """Labels that the eight symmetries of the square change among those that are certain."""
    changed, seen = 0, 0
    for image, element in itertools.product(images, Dihedral().elements(())):
        decisions = Dihedral().act(element, decide(segmenter, image)[None])[0]
        moved = decide(segmenter, Dihedral().act(element, image[None])[0])
        certain = abs(decisions) > CERTAIN
        changed += int(((decisions > 0) != (moved > 0))[certain].sum())
        seen += int(certain.sum())
    return {"changed": changed, "pixels": seen}


def measure(name: str, segmenter: BaseSegmenter, train: Any, test: Any, n_turned: int) -> dict[str, Any]:
    start = time.perf_counter()
    segmenter.fit(*train)
    fit_seconds = time.perf_counter() - start
    images, masks = test
    start = time.perf_counter()
    guesses = segmenter.predict(images)
    seconds = (time.perf_counter() - start) / len(images)
    encode = segmenter.label_map_.encode
    scores = score_masks([encode(mask) for mask in masks], [encode(guess) for guess in guesses], 2)
    return {
        "method": name,
        "mean_iou": scores.mean,
        "interval": list(scores.interval),
        "per_image": scores.mean_iou.tolist(),
        "fit_seconds": fit_seconds,
        "predict_seconds": seconds,
        "turns": [compare(segmenter, images[:n_turned], angle) for angle in ANGLES],
        "symmetries": symmetries(segmenter, images[:1]),
    }


def picture(path: Path, image: Any, segmenters: dict[str, BaseSegmenter], angle: float) -> None:
    """Draw the label map of an image and of the turned image, by each method."""
    figure, axes = plt.subplots(len(segmenters), 4, figsize=(11, 2.9 * len(segmenters)))
    turned = turn(image, angle, 3)
    for line, (name, segmenter) in zip(axes, segmenters.items(), strict=True):
        decisions = decide(segmenter, image)
        labels, expected = decisions > 0, turn(decisions, angle, 1) > 0
        found = decide(segmenter, turned) > 0
        differs = (found != expected) & inside(labels.shape, halo_of(segmenter))
        panels = ((image, "image"), (labels, f"{name}: labels"), (found, f"turned by {angle:g}°: labels"),
                  (differs, "labels that the turn changed"))  # fmt: skip
        for axis, (panel, title) in zip(line, panels, strict=True):
            axis.imshow(panel.squeeze(), cmap="gray")
            axis.set_title(title, fontsize=9)
            axis.axis("off")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80, pil_kwargs={"quality": 80})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--vgg19", type=Path, help="truncated VGG19 weights (Caffe preprocessing)")
    parser.add_argument("--squeezenet", type=Path, help="SqueezeNet 1.0 weights (Caffe preprocessing)")
    parser.add_argument("--sets", nargs="+", default=["dsb2018_stained"])
    parser.add_argument("--quick", action="store_true", help="made-up images, a small bank: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    records: list[dict[str, Any]] = []
    if arguments.quick:
        images, masks = make_demo_set(2, shape=(64, 64))
        small = Segmenter(
            OrbitBank((5,), n_templates=4, group=Rotation(4)), selection_pixels=200, training_pixels=500
        )
        record = measure("orbit", small, (images, masks), (images, masks), 1)
        write_result(
            result_path(arguments, "orbit_segmentation.json"),
            {"quick": True, "records": [record], "machine": machine()},
        )
        return
    for name in arguments.sets:
        folder = arguments.data / name
        dataset = load_pairs(folder / "images", folder / "masks")
        pairs = dict(zip(dataset.stems, zip(dataset.images, dataset.masks, strict=True), strict=True))
        train, test = (
            tuple(list(part) for part in zip(*(pairs[stem] for stem in stems), strict=True))
            for stems in split(folder, 0, 5)
        )
        test = tuple(part[:N_TEST] for part in test)
        trained = methods(arguments.vgg19, arguments.squeezenet)
        for method, segmenter in trained.items():
            record = {"set": name} | measure(method, segmenter, train, test, N_TURNED)
            records.append(record)
            print(record, flush=True)
            write_result(
                result_path(arguments, "orbit_segmentation.json"),
                {"quick": False, "records": records, "machine": machine()},
            )
        if name == arguments.sets[0]:
            picture(arguments.picture, test[0][0], trained, ANGLES[1])


if __name__ == "__main__":
    main()
