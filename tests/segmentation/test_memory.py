"""Memory that a prediction takes, by closed forms."""

from types import SimpleNamespace

import numpy as np
import pytest
import tifffile

from segkit.errors import InputError
from segkit.features.tiles import least_tile
from segkit.images import write_image
from segkit.segmentation.memory import bytes_of_results, is_large, require_memory


@pytest.mark.parametrize(("n_classes", "of_pixel"), [(2, 64), (3, 88), (5, 136)])
def test_results_take_the_same_for_each_pixel(n_classes, of_pixel):
    assert bytes_of_results((300, 200, 3), n_classes) == 300 * 200 * of_pixel


def test_a_tiled_file_is_large_if_stored_and_segmented_it_does_not_fit(tmp_path, monkeypatch):
    pixels = np.zeros((64, 96, 3), dtype=np.uint8)
    tiled, strips, other = (tmp_path / name for name in ("tiled.tif", "strips.tif", "other.png"))
    tifffile.imwrite(tiled, pixels, tile=(16, 16), photometric="rgb")
    tifffile.imwrite(strips, pixels, photometric="rgb")
    write_image(other, pixels[:, :, 0])
    local, whole = (SimpleNamespace(is_local=is_local) for is_local in (True, False))
    needed = 64 * 96 * (3 * 8 + 88)
    for left, expected in ((needed, False), (needed - 1, True)):
        monkeypatch.setattr("segkit.segmentation.memory.bytes_left", lambda left=left: left)
        assert is_large(tiled, local, 3) == expected
        assert not any(is_large(path, local, 3) for path in (strips, other, tmp_path, tmp_path / "none.tif"))
        assert not is_large(tiled, whole, 3)


@pytest.mark.parametrize("is_local", [False, True])
def test_the_results_and_the_smallest_tile_must_fit(is_local, monkeypatch):
    """Of a bank that is not local the smallest tile is the image."""
    bank = SimpleNamespace(
        is_local=is_local, halo=5, alignment=4, bytes_per_pixel=lambda n_channels: 2.5 * n_channels
    )
    shape = (400, 500, 3)
    n_pixels = least_tile(shape, 5, 4) if is_local else 400 * 500
    assert (n_pixels < 400 * 500) == is_local
    needed = 400 * 500 * (64 + 24) + int(n_pixels * 7.5)
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: needed)
    require_memory(bank, shape, 3)
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: needed - 1)
    with pytest.raises(InputError, match="image of 400 x 500 pixels: needs "):
        require_memory(bank, shape, 3)
