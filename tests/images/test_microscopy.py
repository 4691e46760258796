"""Files of microscopes: CZI is written by a library and read back; without the readers one line says what to install."""

import numpy as np
import pytest

from segkit.errors import InputError
from segkit.images import PixelSize, inspect_images, list_images, read_pages, read_pixel_size
from segkit.images.pixel_size import read_z_step
from segkit.images.read import count_pages, read_stack


@pytest.fixture
def czi(tmp_path, rng):
    """A CZI file of three planes and two channels, as Zeiss's library writes it."""
    pytest.importorskip("bioio_czi", reason="bioio-czi is not installed")
    writer = pytest.importorskip("pylibCZIrw.czi", reason="pylibCZIrw is not installed")
    volume = rng.integers(0, 4096, (3, 2, 20, 24)).astype(np.uint16)
    path = tmp_path / "images" / "a.czi"
    path.parent.mkdir()
    with writer.create_czi(str(path)) as document:
        for z, c in np.ndindex(3, 2):
            document.write(data=volume[z, c][:, :, None], plane={"Z": z, "C": c, "T": 0})
        document.write_metadata(
            "a", channel_names={0: "DAPI", 1: "GFP"}, scale_x=0.5e-6, scale_y=0.5e-6, scale_z=2e-6
        )
    return path, volume


def test_a_czi_file(czi):
    path, volume = czi
    stack = read_stack(path)
    assert (stack.layout.axes, stack.layout.shape, stack.layout.channels) == ("Z", (3,), ("DAPI", "GFP"))
    np.testing.assert_array_equal(np.stack(stack.pages), np.moveaxis(volume, 1, 3))
    assert read_pixel_size(path) == PixelSize(0.5, 0.5)
    assert read_z_step(path) == 2.0
    assert count_pages(path) == 3
    assert "DAPI, GFP" in inspect_images(path.parent).describe()


def test_a_damaged_czi_file(czi):
    path, _ = czi
    path.write_bytes(b"no picture" * 99)
    with pytest.raises(InputError, match=r"a\.czi: cannot be decoded"):
        read_pages(path)


@pytest.mark.parametrize(
    ("extension", "package", "cure"),
    [
        ("czi", "bioio_czi", r'pip install "segkit-bio\[microscopy\]" bioio-czi'),
        ("lif", "bioio_lif", r'pip install "segkit-bio\[microscopy\]"$'),
        ("nd2", "bioio_nd2", r'pip install "segkit-bio\[microscopy\]"$'),
    ],
)
def test_a_missing_reader_is_told_in_one_line(tmp_path, monkeypatch, extension, package, cure):
    path = tmp_path / f"a.{extension}"
    path.write_bytes(b"anything")
    assert list_images(tmp_path) == [path.relative_to(tmp_path)]
    monkeypatch.setattr(
        "segkit.images.microscopy.find_spec", lambda name: None if name == package else object()
    )
    for read in (read_pages, count_pages, read_pixel_size):
        with pytest.raises(InputError, match=rf"a\.{extension}: {package} is not installed.*{cure}"):
            read(path)


@pytest.mark.parametrize("extension", ["lif", "nd2"])
def test_damaged_files_of_other_microscopes(tmp_path, extension):
    pytest.importorskip(f"bioio_{extension}", reason=f"bioio-{extension} is not installed")
    (tmp_path / f"a.{extension}").write_bytes(b"no picture" * 99)
    with pytest.raises(InputError, match=rf"a\.{extension}: cannot be decoded"):
        read_pages(tmp_path / f"a.{extension}")
