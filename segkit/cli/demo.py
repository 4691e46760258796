"""The demos: the main job from end to end on made-up pictures, with nothing to download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress, count
from segkit._files import saving
from segkit.cli.cells import PIXEL_SIZE, make_cell_set
from segkit.cli.phantom import make_demo_set
from segkit.evaluation.folders import scores_to_dict
from segkit.evaluation.metrics import score_masks
from segkit.evaluation.object_scores import ObjectScores, score_objects
from segkit.images import (
    Dataset,
    LabelMap,
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
from segkit.images.numbering import MasksAre
from segkit.objects.pictures import object_overlay
from segkit.objects.tables import IMAGES_FILE, OBJECTS_FILE
from segkit.segmentation.folders import predict_folder
from segkit.segmentation.segmenter import Segmenter
from segkit.segmentation.summary import TrainingSummary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Pictures to train and to test on, and their size.
N_TRAIN, N_TEST = 5, 10
N_TRAIN_OBJECTS, N_TEST_OBJECTS = 4, 8
SHAPE = (192, 256)


@dataclass(frozen=True)
class DemoResult:
    """Results of the demo."""

    summary: TrainingSummary
    stems: list[str]
    label_map: LabelMap
    scores: dict[str, Any]
    picture: Path


def run_demo(output: Path, *, seed: int = 0, progress: Progress | None = None) -> DemoResult:
    """Draw pictures with lesions, train on five, segment the others, score, and write everything down."""
    images, masks = make_demo_set(N_TRAIN + N_TEST, shape=SHAPE, random_state=seed)
    label_map = LabelMap.infer([0, 255])
    masks = [label_map.decode(mask) for mask in masks]
    segmenter, train = _learn(output, images, masks, write_mask, N_TRAIN, seed, progress)
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
    images, stems = images[N_TRAIN:], _names(images)[N_TRAIN:]
    truths = [label_map.encode(mask) for mask in masks[N_TRAIN:]]
    guesses = [label_map.encode(read_mask(folder / f"{stem}.png")[0]) for stem in stems]
    scores = score_masks(truths, guesses, label_map.n_classes)
    figure, rows = _panel(scores.mean_iou, ("image", "truth", "probability of lesion", "prediction"), 6.6)
    for rank, index, axes in rows:
        axes[0].imshow(images[index])
        axes[1].imshow(overlay(images[index], truths[index]))
        [probability] = read_image(folder / "probability" / f"{stems[index]}.tif")
        heat = axes[2].imshow(probability[:, :, 0], cmap="magma", vmin=0, vmax=1)
        axes[3].imshow(overlay(images[index], guesses[index]))
        axes[0].set_ylabel(
            f"{rank}: image {stems[index]}\nmean IoU {scores.mean_iou[index]:.2f}", fontsize=11
        )
    figure.colorbar(
        heat, ax=figure.axes, location="right", shrink=0.6, aspect=30, label="probability of lesion"
    )
    return DemoResult(
        segmenter.summary_,
        train.stems,
        label_map,
        scores_to_dict(scores, stems, label_map) | {"notes": []},
        _save(figure, output),
    )


@dataclass(frozen=True, eq=False)
class ObjectDemoResult:
    """Results of the demo of objects."""

    n_train: int
    n_taught: int
    scores: ObjectScores
    tables: tuple[Path, Path]
    picture: Path

    def describe(self) -> str:
        """Describe in three lines what was learnt from, how well it counts, and where the results are."""
        values, interval = self.scores.values, self.scores.intervals["ap_50"]
        sure = "" if interval is None else f" (95 % interval {interval[0]:.2f} to {interval[1]:.2f})"
        n_test = self.scores.n_true.size
        return "\n".join(
            (
                f"Learnt from {count(self.n_train, 'picture')} with {self.n_taught} numbered nuclei; found "
                f"{self.scores.n_predicted.sum()} nuclei in {count(n_test, 'other picture')}, which hold "
                f"{self.scores.n_true.sum()}.",
                f"The count of a picture is off by {values['absolute_count_error']:.1f} on average. AP at IoU 0.5: "
                f"{values['ap_50']:.2f}{sure}; it would be 1 with every nucleus found and nothing else.",
                f"Tables: {self.tables[0]} (a row for each nucleus), {self.tables[1]} (a row for each picture); "
                f"outlines: {self.picture}",
            )
        )


def run_object_demo(output: Path, *, seed: int = 0, progress: Progress | None = None) -> ObjectDemoResult:
    """Draw tissue, learn from numbered nuclei, find those of other pictures, score and measure them."""
    n_train = N_TRAIN_OBJECTS
    images, truths = make_cell_set(n_train + N_TEST_OBJECTS, shape=SHAPE, random_state=seed)
    pixel_size = PixelSize(PIXEL_SIZE, PIXEL_SIZE)

    def write(path: Path, labels: NDArray[Any]) -> None:
        write_labels(path, labels, pixel_size)

    segmenter, train = _learn(output, images, truths, write, n_train, seed, progress, "instances")
    folder = output / "predictions"
    predict_folder(
        segmenter,
        output / "test" / "images",
        folder,
        overlay=True,
        objects=True,
        pixel_size=pixel_size,
        overwrite_foreign=True,
        progress=progress,
    )
    images, truths, stems = images[n_train:], truths[n_train:], _names(images)[n_train:]
    found = [read_instances(folder / "objects" / f"{stem}.tif") for stem in stems]
    scores = score_objects(truths, found)
    ap = scores.image_ap[:, 0]
    figure, rows = _panel(ap, ("picture", "true nuclei", "found nuclei"), 9.4)
    for rank, index, axes in rows:
        axes[0].imshow(images[index])
        axes[0].set_ylabel(f"{rank}: picture {stems[index]}\nAP at IoU 0.5: {ap[index]:.2f}", fontsize=11)
        for axis, labels in ((axes[1], truths[index]), (axes[2], found[index])):
            axis.imshow(object_overlay(images[index], labels))
            axis.set_xlabel(f"{np.unique(labels[labels > 0]).size} nuclei", fontsize=11)
    n_taught = sum(int(labels.max()) for labels in train.instances or ())
    tables = folder / OBJECTS_FILE, folder / IMAGES_FILE
    return ObjectDemoResult(n_train, n_taught, scores, tables, _save(figure, output))


def _learn(
    output: Path,
    images: Sequence[FloatArray],
    masks: Sequence[NDArray[Any]],
    write: Callable[[Path, NDArray[Any]], None],
    n_train: int,
    seed: int,
    progress: Progress | None,
    masks_are: MasksAre | None = None,
) -> tuple[Segmenter, Dataset]:
    """Write pictures and masks, and train on the first ones."""
    for place, (stem, image, mask) in enumerate(zip(_names(images), images, masks, strict=True)):
        folder = output / ("train" if place < n_train else "test")
        write_image(folder / "images" / f"{stem}.png", image)
        write(folder / "masks" / f"{stem}.png", mask)
    train = load_pairs(output / "train" / "images", output / "train" / "masks", masks_are=masks_are)
    segmenter = Segmenter(random_state=seed)
    segmenter.fit(
        train.images, train.masks, instances=train.instances, label_map=train.label_map, progress=progress
    )
    segmenter.save(output / "model.segkit")
    return segmenter, train


def _names(images: Sequence[FloatArray]) -> list[str]:
    return [f"{number:02d}" for number in range(1, len(images) + 1)]


def _panel(
    scores: NDArray[np.float64], titles: Sequence[str], height: float
) -> tuple[Figure, list[tuple[str, int, Any]]]:
    """Lay out a row for the best, the median and the worst picture: rank, index and axes of each."""
    from matplotlib.figure import Figure

    order = np.argsort(-scores, kind="stable")
    chosen = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    figure = Figure(figsize=(12, height), layout="constrained")
    axes = figure.subplots(len(chosen), len(titles))
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=12)
    return figure, [(rank, int(index), row) for (rank, index), row in zip(chosen.items(), axes, strict=True)]


def _save(figure: Figure, output: Path) -> Path:
    picture = output / "demo.png"
    with saving(picture) as temporary:
        figure.savefig(temporary, dpi=110)
    return picture
