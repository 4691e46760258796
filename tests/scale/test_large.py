"""Tiles of an image larger than memory, decided on workers."""

import numpy as np
import pytest

from segkit import Segmenter
from segkit.features import MultiscaleBank
from segkit.segmentation.large import segment_large

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
    """An OME-Zarr of 300 x 260 pixels."""
    image = (255 * np.random.default_rng(1).random((1, 300, 260))).astype(np.uint8)
    group = zarr.open_group(str(tmp_path / "slide.zarr"), mode="w", zarr_format=3)
    group.create_array("0", shape=image.shape, chunks=(1, 100, 100), dtype=image.dtype)[:] = image
    axes = [{"name": name} for name in "cyx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [{"path": "0"}]}]}
    return tmp_path / "slide.zarr"


def read(outcome):
    return np.asarray(zarr.open_group(str(outcome.labels), mode="r")["labels/segkit/0"])


@pytest.mark.slow(short=True)
def test_labels_of_workers_are_those_of_one_process(cluster, fitted, slide, tmp_path, monkeypatch):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 100**2)
    plain = segment_large(fitted, slide, tmp_path / "plain")
    assert plain.n_tiles > 4
    spread = segment_large(fitted, slide, tmp_path / "spread", workers=cluster.spread)
    assert (spread.n_tiles, spread.n_kept, spread.faults) == (plain.n_tiles, 0, [])
    np.testing.assert_array_equal(read(spread), read(plain))


def test_a_missing_chunk_is_told_by_a_worker_and_mended_by_resume(
    cluster, fitted, slide, tmp_path, monkeypatch
):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 100**2)
    plain = segment_large(fitted, slide, tmp_path / "plain")
    [chunk] = slide.glob("0/c/0/2/2")
    content = chunk.read_bytes()
    chunk.unlink()
    broken = segment_large(fitted, slide, tmp_path / "out", workers=cluster.spread)
    assert any("tile at row" in fault and str(slide) in fault for fault in broken.faults)
    chunk.write_bytes(content)
    mended = segment_large(fitted, slide, tmp_path / "out", resume=True, workers=cluster.spread)
    assert mended.faults == []
    np.testing.assert_array_equal(read(mended), read(plain))
