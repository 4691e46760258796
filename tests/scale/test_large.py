"""Tiles of an image larger than memory, decided on workers."""

import numpy as np
import pytest

from segkit import Segmenter
from segkit.features import MultiscaleBank
from segkit.images import write_image
from segkit.segmentation.folders import segment_folder

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow
zarr = pytest.importorskip("zarr")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    mask = np.zeros((60, 70), dtype=int)
    mask[20:40, 20:50] = 1
    image = np.clip(0.3 + 0.3 * mask + 0.05 * rng.standard_normal(mask.shape), 0, 1)
    segmenter = Segmenter(MultiscaleBank(sigma_max=2), training_pixels=400, selection_pixels=200)
    return segmenter.fit([image], [mask])


@pytest.fixture
def slide(tmp_path):
    """An OME-Zarr of 300 x 260 pixels, in a folder with a picture."""
    write_image(tmp_path / "images" / "picture.png", np.random.default_rng(2).random((80, 90)))
    image = (255 * np.random.default_rng(1).random((1, 300, 260))).astype(np.uint8)
    group = zarr.open_group(str(tmp_path / "images" / "slide.zarr"), mode="w", zarr_format=3)
    group.create_array("0", shape=image.shape, chunks=(1, 100, 100), dtype=image.dtype)[:] = image
    axes = [{"name": name} for name in "cyx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [{"path": "0"}]}]}
    return tmp_path / "images" / "slide.zarr"


def read(output):
    return np.asarray(zarr.open_group(str(output / "slide.zarr"), mode="r")["labels/segkit/0"])


@pytest.mark.slow(short=True)
def test_labels_of_workers_are_those_of_one_process(cluster, fitted, slide, tmp_path, monkeypatch):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 100**2)
    plain = segment_folder(fitted, slide.parent, tmp_path / "plain")
    spread = segment_folder(fitted, slide.parent, tmp_path / "spread", workers=cluster.spread)
    for outcome in (plain, spread):
        assert [(row.image, row.status) for row in outcome.rows] == [
            ("picture.png", "written"),
            ("slide.zarr", "written"),
        ]
    assert spread.rows[1].tiles == plain.rows[1].tiles > 4
    np.testing.assert_array_equal(read(tmp_path / "spread"), read(tmp_path / "plain"))
    pictures = [(tmp_path / name / "picture.png").read_bytes() for name in ("plain", "spread")]
    assert pictures[0] == pictures[1]


def test_a_missing_chunk_is_told_by_a_worker_and_mended_by_resume(
    cluster, fitted, slide, tmp_path, monkeypatch
):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 100**2)
    segment_folder(fitted, slide, tmp_path / "plain")
    [chunk] = slide.glob("0/c/0/2/2")
    content = chunk.read_bytes()
    chunk.unlink()
    [broken] = segment_folder(fitted, slide, tmp_path / "out", workers=cluster.spread).rows
    assert broken.status == "failed"
    assert f"{slide} at row" in broken.reason
    chunk.write_bytes(content)
    [mended] = segment_folder(fitted, slide, tmp_path / "out", resume=True, workers=cluster.spread).rows
    assert (mended.status, mended.reason) == ("written", "")
    np.testing.assert_array_equal(read(tmp_path / "out"), read(tmp_path / "plain"))
