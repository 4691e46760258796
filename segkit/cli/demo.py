"""The demo: the main job from end to end on made-up pictures, with nothing to download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress
from segkit._files import saving
from segkit.cli.phantom import make_demo_set
from segkit.evaluation.folders import scores_to_dict
from segkit.evaluation.metrics import Scores, score_masks
from segkit.images import LabelMap, load_pairs, overlay, read_image, read_mask, write_image, write_mask
from segkit.segmentation.folders import predict_folder
from segkit.segmentation.segmenter import Segmenter
from segkit.segmentation.summary import TrainingSummary

N_TRAIN, N_TEST = 5, 10


@dataclass(frozen=True)
class DemoResult:
    """What the demo did and how well."""

    summary: TrainingSummary
    stems: list[str]
    label_map: LabelMap
    scores: dict[str, Any]
    picture: Path


def run_demo(output: Path, *, seed: int = 0, progress: Progress | None = None) -> DemoResult:
    """Draw pictures, train on five, segment the others, score, and write everything down."""
    images, masks = make_demo_set(N_TRAIN + N_TEST, random_state=seed)
    label_map = LabelMap.infer([0, 255])
    masks = [label_map.decode(mask) for mask in masks]
    stems = [f"{index + 1:02d}" for index in range(len(images))]
    for stem, image, mask in zip(stems, images, masks, strict=True):
        folder = output / ("train" if int(stem) <= N_TRAIN else "test")
        write_image(folder / "images" / f"{stem}.png", image)
        write_mask(folder / "masks" / f"{stem}.png", mask)

    segmenter = Segmenter(random_state=seed)
    train = load_pairs(output / "train" / "images", output / "train" / "masks")
    segmenter.fit(train.images, train.masks, label_map=train.label_map, progress=progress)
    segmenter.save(output / "model.segkit")

    folder = output / "predictions"
    predict_folder(
        segmenter,
        output / "test" / "images",
        folder,
        probability=True,
        overlay=True,
        overwrite_foreign=True,
        progress=progress,
    )
    images, masks, stems = images[N_TRAIN:], masks[N_TRAIN:], stems[N_TRAIN:]
    truths = [label_map.encode(mask) for mask in masks]
    guesses = [label_map.encode(read_mask(folder / f"{stem}.png")[0]) for stem in stems]
    probabilities = [read_image(folder / "probability" / f"{stem}.tif")[0][:, :, 0] for stem in stems]
    scores = score_masks(truths, guesses, label_map.n_classes)
    picture = output / "demo.png"
    _draw_panel(picture, images, truths, probabilities, guesses, stems, scores)
    return DemoResult(
        segmenter.summary_,
        train.stems,
        label_map,
        scores_to_dict(scores, stems, label_map) | {"notes": []},
        picture,
    )


def _draw_panel(
    path: Path,
    images: Sequence[FloatArray],
    truths: Sequence[NDArray[Any]],
    probabilities: Sequence[FloatArray],
    guesses: Sequence[NDArray[Any]],
    stems: Sequence[str],
    scores: Scores,
) -> None:
    """Best, median and worst test image, each with truth, probability and prediction."""
    from matplotlib.figure import Figure

    order = np.argsort(-scores.mean_iou, kind="stable")
    chosen = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    figure = Figure(figsize=(12, 6.6), layout="constrained")
    axes = figure.subplots(len(chosen), 4)
    for row, (rank, index) in zip(axes, chosen.items(), strict=True):
        row[0].imshow(images[index])
        row[1].imshow(overlay(images[index], truths[index]))
        heat = row[2].imshow(probabilities[index], cmap="magma", vmin=0, vmax=1)
        row[3].imshow(overlay(images[index], guesses[index]))
        row[0].set_ylabel(f"{rank}: image {stems[index]}\nmean IoU {scores.mean_iou[index]:.2f}", fontsize=11)
        for axis in row:
            axis.set(xticks=[], yticks=[])
    for axis, title in zip(axes[0], ("image", "truth", "probability of lesion", "prediction"), strict=True):
        axis.set_title(title, fontsize=12)
    figure.colorbar(heat, ax=axes, location="right", shrink=0.6, aspect=30, label="probability of lesion")
    with saving(path) as temporary:
        figure.savefig(temporary, dpi=110)
