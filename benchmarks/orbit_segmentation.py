"""What a turn of the image does to its label map: the orbit bank beside networks.

    python -m benchmarks orbit_segmentation --data DATA --weights WEIGHTS

DATA holds dsb2018_stained with images/ and masks/. A model with the recipe of paper 004 is trained on five images (the
few-shot split, seed 0) and predicts ten test images as they are, three turned. Within the disc that every turn keeps, less
the halo of the bank, the labels of the turned image are compared with the turned decisions of the image. An FCN on
SqueezeNet is trained for 400 steps.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
from scipy import ndimage

from benchmarks.markdown import markdown_table, with_interval
from benchmarks.rows import ROOT, Row, Study, flat
from benchmarks.segmentation import split
from benchmarks.tables.bandwidths import paper_recipe
from segkit import OrbitBank, Segmenter
from segkit.baselines import FCN
from segkit.cli.phantom import make_demo_set
from segkit.evaluation.metrics import score_masks
from segkit.images import load_pairs
from segkit.invariance import Dihedral, Rotation
from segkit.segmentation.base import BaseSegmenter

PICTURE = ROOT / "docs" / "orbit_segmentation.jpg"
SET = "dsb2018_stained"
ANGLES = (30.0, 17.0)
N_TEST, N_TURNED = 10, 3
# Pixels whose decision is nearer to the threshold may fall on either side by rounding.
CERTAIN = 1e-5


def run(study: Study) -> None:
    if study.quick:
        pairs = make_demo_set(2, shape=(64, 64))
        bank = OrbitBank((5,), n_templates=4, group=Rotation(4))
        small = Segmenter(bank, selection_pixels=200, training_pixels=500)
        study.row({"set": "made-up", "features": "orbit"}, partial(measure, small, pairs, pairs))
        return
    folder = study.folder(SET)
    dataset = load_pairs(folder / "images", folder / "masks")
    pairs = dict(zip(dataset.stems, zip(dataset.images, dataset.masks, strict=True), strict=True))
    train, test = (
        tuple(list(part) for part in zip(*(pairs[stem] for stem in stems), strict=True))
        for stems in split(folder, 0, 5)
    )
    test = tuple(part[:N_TEST] for part in test)
    segmenters = methods(study)
    for name, segmenter in segmenters.items():
        study.row({"set": SET, "features": name}, partial(measure, segmenter, train, test))
    if all(hasattr(segmenter, "label_map_") for segmenter in segmenters.values()):  # all trained in this run
        draw(test[0][0], segmenters, ANGLES[1])


def methods(study: Study) -> dict[str, BaseSegmenter]:
    vgg19 = {"name": "vgg19", "weights": study.weight("vgg19"), "preprocessing": "caffe", "pyramid": [1]}
    recipe = partial(paper_recipe, training={"threshold": "iou"})
    return {
        "orbit": recipe({"name": "orbit"}),
        "orbit, one angle": recipe({"name": "orbit", "n_angles": 1}),
        "VGG19": recipe(vgg19),
        "VGG19, orbit=d4": recipe(vgg19 | {"orbit": "d4"}),
        "FCN-8s": FCN(
            backbone="squeezenet1_0",
            weights=study.weight("squeezenet1_0"),
            preprocessing="caffe",
            n_hidden=512,
            crop=160,
            max_steps=400,
            random_state=0,
        ),
    }


def measure(segmenter: BaseSegmenter, train: Any, test: Any) -> dict[str, Any]:
    segmenter.fit(*train)
    images, masks = test
    encode = segmenter.label_map_.encode
    guesses = [encode(guess) for guess in segmenter.predict(images)]
    scores = score_masks([encode(mask) for mask in masks], guesses, 2)
    return {
        "mean_iou": scores.mean,
        "interval": list(scores.interval),
        "turns": [compare(segmenter, images[:N_TURNED], angle) for angle in ANGLES],
        "symmetries": symmetries(segmenter, images[:1]),
    }


def decide(segmenter: BaseSegmenter, image: Any) -> Any:
    """Map that is above 0 where the foreground is."""
    if isinstance(segmenter, Segmenter):
        return segmenter.decision_function(image) - segmenter.rule_.threshold
    return segmenter.predict_proba(image)[:, :, 1] - 0.5


def turn(array: Any, angle: float, order: int) -> Any:
    turned = ndimage.rotate(array, angle, axes=(1, 0), reshape=False, order=order, mode="mirror")
    return np.clip(turned, 0, 1).astype(np.float32) if order == 3 else turned


def inside(shape: tuple[int, int], segmenter: BaseSegmenter) -> Any:
    """Disc that every turn keeps, less the border that padding reaches; nothing would be left without an FCN's."""
    halo = segmenter.bank_.halo if isinstance(segmenter, Segmenter) else 0
    rows, cols = (np.arange(size) - (size - 1) / 2 for size in shape)
    return np.hypot(rows[:, None], cols) < min(shape) / 2 - halo - 1


def compare(segmenter: BaseSegmenter, images: list[Any], angle: float) -> dict[str, float]:
    """Share of labels that a turn changes, and IoU of the two foregrounds, away from the border."""
    changed, seen, common, either = 0, 0, 0, 0
    for image in images:
        expected = turn(decide(segmenter, image), angle, 1) > 0
        labels = decide(segmenter, turn(image, angle, 3)) > 0
        kept = inside(labels.shape, segmenter)
        changed += int((labels != expected)[kept].sum())
        seen += int(kept.sum())
        common += int((labels & expected)[kept].sum())
        either += int((labels | expected)[kept].sum())
    percent = 100 * changed / seen
    return {"angle": angle, "changed_percent": percent, "foreground_iou": common / max(either, 1)}


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


def draw(image: Any, segmenters: dict[str, BaseSegmenter], angle: float) -> None:
    """Draw the label map of an image and of the turned image, by each method."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(segmenters), 4, figsize=(11, 2.9 * len(segmenters)))
    turned = turn(image, angle, 3)
    for line, (name, segmenter) in zip(axes, segmenters.items(), strict=True):
        decisions = decide(segmenter, image)
        labels, expected = decisions > 0, turn(decisions, angle, 1) > 0
        found = decide(segmenter, turned) > 0
        panels = {
            "image": image,
            f"{name}: labels": labels,
            f"turned by {angle:g}°: labels": found,
            "labels that the turn changed": (found != expected) & inside(labels.shape, segmenter),
        }
        for axis, (title, panel) in zip(line, panels.items(), strict=True):
            axis.imshow(panel.squeeze(), cmap="gray")
            axis.set_title(title, fontsize=9)
            axis.axis("off")
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=80, pil_kwargs={"quality": 80})
    plt.close(figure)


def orbit_segmentation(rows: list[Row]) -> str:
    turns = [f"labels changed by a turn of {angle:g}°" for angle in ANGLES]
    lines = []
    for row in flat(rows):
        cells = [f"{found['changed_percent']:.2f} %" for found in row["turns"]]
        changed = 100 * row["symmetries"]["changed"] / row["symmetries"]["pixels"]
        lines.append(
            [row["features"], with_interval(row["mean_iou"], row["interval"]), *cells, f"{changed:.2f} %"]
        )
    header = ["features", "mean IoU (95 % interval)", *turns, "changed by quarter turns and reflections"]
    return markdown_table(header, lines)


TABLES = {"orbit_segmentation": orbit_segmentation}
