"""Arrays on disk: written block by block, and told plainly where the disk cannot hold them."""

import os

import numpy as np
import pytest

from segkit.errors import OutputError
from segkit.images.pyramids import OnDisk


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
def test_an_array_has_one_value_and_takes_others(tmp_path, dtype):
    array = OnDisk.make(tmp_path / "new" / "a.npy", (3, 700, 600), 7, dtype)
    assert (array.shape, array.dtype, len(array)) == ((3, 700, 600), dtype, 3)
    array[1, 10:20, 30:40] = 9
    expected = np.full(array.shape, 7, dtype)
    expected[1, 10:20, 30:40] = 9
    np.testing.assert_array_equal(array[:], expected)
    np.testing.assert_array_equal(np.load(tmp_path / "new" / "a.npy"), expected)
    array.remove()
    assert not list((tmp_path / "new").iterdir())


def test_a_disk_without_room_is_told_before_anything_is_mapped(tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(
            OutputError, match=r"a\.npy: cannot be written \(File too large\): check the disk"
        ):
            OnDisk.make(tmp_path / "a.npy", (1000, 1000), 0, np.uint8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_a_file_of_somebody_else_under_its_name_is_not_written_into(tmp_path):
    (tmp_path / "mine").write_bytes(b"mine")
    for link in (os.link, os.symlink):
        link(tmp_path / "mine", tmp_path / "a.npy")
        OnDisk.make(tmp_path / "a.npy", (4, 4), 0, np.uint8).remove()
        assert (tmp_path / "mine").read_bytes() == b"mine"
