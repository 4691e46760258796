"""The demos: pictures drawn, a model trained on some, the others segmented and scored, and a panel of the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress, count
from segkit._files import saving
from segkit.cli.cells import PIXEL_SIZE, make_cell_set
from segkit.cli.evaluate import describe_scores
from segkit.cli.phantom import make_demo_set
from segkit.evaluation import compare_folders
from segkit.images import (
    Dataset,
    PixelSize,
    load_pairs,
    overlay,
    read_image,
    read_instances,
    read_mask,
    write_image,
    write_labels,
    write_mask,
)
from segkit.objects.pictures import object_overlay
from segkit.objects.tables import IMAGES_FILE, OBJECTS_FILE
from segkit.segmentation.folders import predict_folder
from segkit.segmentation.outcome import KINDS
from segkit.segmentation.segmenter import Segmenter
from segkit.segmentation.summary import summarise_training

# Pictures to train and to test on, and their size.
N_TRAIN, N_TEST = 5, 10
N_TRAIN_OBJECTS, N_TEST_OBJECTS = 4, 8
SHAPE = (192, 256)
_PANEL = "demo.png"


@dataclass(frozen=True)
class Demo:
    """What a demo tells, its scores as `compare_folders` gives them, and its panel."""

    told: str
    scores: dict[str, Any]
    picture: Path


def run_demo(output: Path, *, progress: Progress | None = None) -> Demo:
    """Draw pictures with lesions, train on five, segment the others, score, and write everything down."""
    images, masks = make_demo_set(N_TRAIN + N_TEST, shape=SHAPE)
    segmenter, train = _learn(output, images, [255 * mask for mask in masks], N_TRAIN, progress)
    test, folder = output / "test", output / "predictions"
    predict_folder(
        segmenter,
        test / "images",
        folder,
        probability=True,
        overlay=True,
        overwrite_foreign=True,
        progress=progress,
    )
    scores = compare_folders(folder, test / "masks", skip=KINDS) | {"notes": []}
    ious = {entry["stem"]: entry["mean_iou"] for entry in scores["images"]}
    with _panel(output, ious, ("image", "truth", "probability of lesion", "prediction"), 6.6) as (
        figure,
        rows,
    ):
        for rank, stem, axes in rows:
            image, truth = images[int(stem) - 1], masks[int(stem) - 1]
            [probability] = read_image(folder / "probability" / f"{stem}.tif")
            [predicted] = read_mask(folder / f"{stem}.png")
            axes[0].imshow(image)
            axes[1].imshow(overlay(image, truth))
            heat = axes[2].imshow(probability[:, :, 0], cmap="magma", vmin=0, vmax=1)
            axes[3].imshow(overlay(image, (predicted > 0).astype(np.uint8)))
            axes[0].set_ylabel(f"{rank}: image {stem}\nmean IoU {ious[stem]:.2f}", fontsize=11)
        figure.colorbar(
            heat, ax=figure.axes, location="right", shrink=0.6, aspect=30, label="probability of lesion"
        )
    told = [
        *summarise_training(segmenter.summary_, train.label_map, train.stems),
        describe_scores(scores),
        f"Pictures: {output / _PANEL}",
    ]
    return Demo("\n".join(told), scores, output / _PANEL)


def run_object_demo(output: Path, *, progress: Progress | None = None) -> Demo:
    """Draw tissue, learn from numbered nuclei, find those of other pictures, score and measure them."""
    images, truths = make_cell_set(N_TRAIN_OBJECTS + N_TEST_OBJECTS, shape=SHAPE)
    pixel_size = PixelSize(PIXEL_SIZE, PIXEL_SIZE)

    segmenter, train = _learn(output, images, truths, N_TRAIN_OBJECTS, progress, pixel_size)
    test, folder = output / "test", output / "predictions"
    predict_folder(
        segmenter,
        test / "images",
        folder,
        overlay=True,
        objects=True,
        pixel_size=pixel_size,
        overwrite_foreign=True,
        progress=progress,
    )
    scores = compare_folders(folder / "objects", test / "masks", masks_are="instances")
    found = scores["objects"]
    aps = {entry["stem"]: entry["ap_50"] for entry in found["images"]}
    with _panel(output, aps, ("picture", "true nuclei", "found nuclei"), 9.4) as (_, rows):
        for rank, stem, axes in rows:
            image, truth = images[int(stem) - 1], truths[int(stem) - 1]
            axes[0].imshow(image)
            axes[0].set_ylabel(f"{rank}: picture {stem}\nAP at IoU 0.5: {aps[stem]:.2f}", fontsize=11)
            for axis, labels in zip(
                axes[1:], (truth, read_instances(folder / "objects" / f"{stem}.tif")), strict=True
            ):
                axis.imshow(object_overlay(image, labels))
                axis.set_xlabel(f"{np.unique(labels[labels > 0]).size} nuclei", fontsize=11)
    n_taught = sum(int(labels.max()) for labels in train.instances or ())
    ap, interval = found["scores"]["ap_50"]["value"], found["scores"]["ap_50"]["interval"]
    sure = "" if interval is None else f" (95 % interval {interval[0]:.2f} to {interval[1]:.2f})"
    told = [
        f"Learnt from {count(N_TRAIN_OBJECTS, 'picture')} with {n_taught} numbered nuclei; found {found['n_predicted']} "
        f"nuclei in {count(N_TEST_OBJECTS, 'other picture')}, which hold {found['n_true']}.",
        f"The count of a picture is off by {found['scores']['absolute_count_error']['value']:.1f} on average. AP at IoU "
        f"0.5: {ap:.2f}{sure}; it would be 1 with every nucleus found and nothing else.",
        f"Tables: {folder / OBJECTS_FILE} (a row for each nucleus), {folder / IMAGES_FILE} (a row for each picture); "
        f"outlines: {output / _PANEL}",
    ]
    return Demo("\n".join(told), scores, output / _PANEL)


def _learn(
    output: Path,
    images: Sequence[FloatArray],
    masks: Sequence[NDArray[Any]],
    n_train: int,
    progress: Progress | None,
    pixel_size: PixelSize | None = None,
) -> tuple[Segmenter, Dataset]:
    """Write pictures, named by their numbers, and masks, of objects if pixels have a size; train on the first ones."""
    for number, (image, mask) in enumerate(zip(images, masks, strict=True), start=1):
        folder = output / ("train" if number <= n_train else "test")
        write_image(folder / "images" / f"{number:02d}.png", image)
        path = folder / "masks" / f"{number:02d}.png"
        if pixel_size is None:
            write_mask(path, mask)
        else:
            write_labels(path, mask, pixel_size)
    train = load_pairs(
        output / "train" / "images",
        output / "train" / "masks",
        masks_are="classes" if pixel_size is None else "instances",
    )
    segmenter = Segmenter(random_state=0)
    segmenter.fit(
        train.images, train.masks, instances=train.instances, label_map=train.label_map, progress=progress
    )
    segmenter.save(output / "model.segkit")
    return segmenter, train


@contextmanager
def _panel(
    output: Path, scores: Mapping[str, float], titles: Sequence[str], height: float
) -> Iterator[tuple[Any, list[tuple[str, str, Any]]]]:
    """Draw a panel with a row for the best, the median and the worst picture: rank, stem and axes of each."""
    from matplotlib.figure import Figure

    order = sorted(scores, key=lambda stem: -scores[stem])
    chosen = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    figure = Figure(figsize=(12, height), layout="constrained")
    axes = figure.subplots(len(chosen), len(titles))
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=12)
    yield figure, [(rank, stem, row) for (rank, stem), row in zip(chosen.items(), axes, strict=True)]
    with saving(output / _PANEL) as temporary:
        figure.savefig(temporary, dpi=110)
