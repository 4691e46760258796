"""The demo of objects: nuclei that touch are counted and measured on made-up pictures, with nothing to download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segkit._common import FloatArray, Progress, count
from segkit._files import saving
from segkit.cli.cells import PIXEL_SIZE, Labels, make_cell_set
from segkit.evaluation.objects import ObjectScores, score_objects
from segkit.images import PixelSize, load_pairs, read_instances, write_image, write_labels
from segkit.objects.pictures import object_overlay
from segkit.objects.tables import IMAGES_FILE, OBJECTS_FILE
from segkit.segmentation.folders import predict_folder
from segkit.segmentation.segmenter import Segmenter

N_TRAIN, N_TEST = 4, 8
SHAPE = (192, 256)


@dataclass(frozen=True, eq=False)
class ObjectDemoResult:
    """What the demo of objects did and how well."""

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
    images, truths = make_cell_set(N_TRAIN + N_TEST, shape=SHAPE, random_state=seed)
    stems = [f"{index + 1:02d}" for index in range(len(images))]
    pixel_size = PixelSize(PIXEL_SIZE, PIXEL_SIZE)
    for stem, image, labels in zip(stems, images, truths, strict=True):
        folder = output / ("train" if int(stem) <= N_TRAIN else "test")
        write_image(folder / "images" / f"{stem}.png", image)
        write_labels(folder / "masks" / f"{stem}.png", labels, pixel_size)

    segmenter = Segmenter(random_state=seed)
    train = load_pairs(output / "train" / "images", output / "train" / "masks", masks_are="instances")
    segmenter.fit(
        train.images, train.masks, instances=train.instances, label_map=train.label_map, progress=progress
    )
    segmenter.save(output / "model.segkit")

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
    images, truths, stems = images[N_TRAIN:], truths[N_TRAIN:], stems[N_TRAIN:]
    found = [read_instances(folder / "objects" / f"{stem}.tif") for stem in stems]
    scores = score_objects(truths, found)
    picture = output / "demo.png"
    _draw_panel(picture, images, truths, found, stems, scores)
    n_taught = sum(int(labels.max()) for labels in train.instances or ())
    tables = folder / OBJECTS_FILE, folder / IMAGES_FILE
    return ObjectDemoResult(N_TRAIN, n_taught, scores, tables, picture)


def _draw_panel(
    path: Path,
    images: Sequence[FloatArray],
    truths: Sequence[Labels],
    found: Sequence[Labels],
    stems: Sequence[str],
    scores: ObjectScores,
) -> None:
    """Best, median and worst test picture, each with true and found nuclei."""
    from matplotlib.figure import Figure

    ap = scores.image_ap[:, 0]
    order = np.argsort(-ap, kind="stable")
    chosen = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    figure = Figure(figsize=(12, 9.4), layout="constrained")
    axes = figure.subplots(len(chosen), 3)
    for row, (rank, index) in zip(axes, chosen.items(), strict=True):
        pictures = [images[index], *(object_overlay(images[index], one[index]) for one in (truths, found))]
        for axis, picture in zip(row, pictures, strict=True):
            axis.imshow(picture)
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"{rank}: picture {stems[index]}\nAP at IoU 0.5: {ap[index]:.2f}", fontsize=11)
        for axis, labels in ((row[1], truths[index]), (row[2], found[index])):
            axis.set_xlabel(f"{np.unique(labels[labels > 0]).size} nuclei", fontsize=11)
    for axis, title in zip(axes[0], ("picture", "true nuclei", "found nuclei"), strict=True):
        axis.set_title(title, fontsize=12)
    with saving(path) as temporary:
        figure.savefig(temporary, dpi=110)
