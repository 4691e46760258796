"""Made-up images with objects, a small model of them, and a folder."""

import csv

import numpy as np
import pytest
import tifffile

from segkit import Segmenter
from segkit.features import Module, ModuleBank
from segkit.images import UNLABELLED
from segkit.segmentation.base import BaseSegmenter
from segkit.segmentation.folders import segment_folder

# All results of a folder.
ALL = {"probability": True, "overlay": True, "objects": True}


def read_table(path):
    """Rows of a table, by the names of its columns."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def make_cells(seed):
    """Discs that touch in pairs, and their numbers."""
    rng = np.random.default_rng(seed)
    rows, cols = np.indices((48, 64))
    labels = np.zeros((48, 64), dtype=np.int32)
    for number, (row, col) in enumerate(((12, 12), (12, 25), (36, 20), (36, 33), (24, 52)), start=1):
        labels[np.hypot(rows - row, cols - col - seed) < 7] = number
    image = np.clip(0.3 + 0.4 * (labels > 0) + 0.04 * rng.standard_normal(labels.shape), 0, 1)
    return image.astype(np.float32), labels


@pytest.fixture
def cells():
    """Make an image and its numbered objects, from a seed."""
    return make_cells


@pytest.fixture(scope="session")
def cell_segmenter():
    images, labels = zip(*(make_cells(seed) for seed in range(3)), strict=True)
    segmenter = Segmenter(
        ModuleBank((Module(n_scales=2, n_angles=3),)), selection_pixels=300, training_pixels=500
    )
    return segmenter.fit(images, [255 * (one > 0).astype(np.uint8) for one in labels], instances=labels)


@pytest.fixture(scope="session")
def make_cell_images():
    """Write a picture with a pixel size, one without objects, and a stack."""

    def make(folder):
        (folder / "a").mkdir(parents=True)
        options = {"imagej": True, "resolution": (2, 2), "metadata": {"unit": "um"}}
        tifffile.imwrite(folder / "a" / "one.tif", make_cells(3)[0], **options)
        tifffile.imwrite(
            folder / "stack.tif", np.stack([make_cells(4)[0], make_cells(5)[0]]), metadata={"axes": "ZYX"}
        )
        blank = np.random.default_rng(0).normal(0.3, 0.01, (48, 64)).astype(np.float32)
        tifffile.imwrite(folder / "none.tif", blank)
        return folder

    return make


@pytest.fixture(scope="session")
def finished(cell_segmenter, make_cell_images, tmp_path_factory):
    """Images, the output folder of a run over them, and the model; none may be changed."""
    place = tmp_path_factory.mktemp("finished")
    make_cell_images(place / "images")
    cell_segmenter.save(place / "m.segkit")
    segment_folder(cell_segmenter, place / "images", place / "out", **ALL)
    return place


@pytest.fixture
def cell_images(make_cell_images, tmp_path):
    return make_cell_images(tmp_path / "images")


@pytest.fixture
def contents():
    """Give the bytes of all results below a folder; what is hidden is none."""

    def read(folder):
        files = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
        return {
            place.as_posix(): path.read_bytes()
            for place, path in files.items()
            if not any(part.startswith(".") for part in place.parts)
        }

    return read


class Bright(BaseSegmenter):
    """Says the second class where the first channel is above a half; learns nothing."""

    def __init__(self, unlabelled=UNLABELLED):
        self.unlabelled = unlabelled

    def _fit(self, images, ids, progress):
        self.learnt_ = images, ids
        self.progress_ = progress

    def _scores(self, image):
        return image[:, :, 0]

    def _labels(self, scores):
        return (scores > 0.5).astype(np.intp)

    def _probabilities(self, scores):
        return np.stack([1 - scores, scores], axis=2)


@pytest.fixture(scope="session", name="Bright")
def bright_class():
    """Give the class of a segmenter that learns nothing."""
    return Bright
