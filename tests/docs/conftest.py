"""The made-up folders that the pages of the documentation speak of, and the command line in this process."""

import json
import re
import shlex
import sys

import numpy as np
import pytest
import tifffile
import zarr
from scipy import ndimage

from segkit.cli import commands
from segkit.cli.cells import make_cell_set
from segkit.cli.phantom import make_demo_set
from segkit.images import write_image, write_labels, write_mask

SIDE, SIDE_OF_CELLS = 64, 96
N_TRAIN, N_NEW = 5, 2


def with_a_dark_class(image, mask):
    """Three classes: background, lesion, and the darkest tenth of the picture."""
    grey = ndimage.gaussian_filter(image.mean(axis=2), 2)
    return np.where(mask == 1, 1, np.where(grey < np.quantile(grey, 0.1), 2, 0)).astype(np.uint8)


def strokes(mask):
    """Scribbles: 0 for pixels nobody annotated, 1 for background, 2 for the object."""
    rows, _ = np.indices(mask.shape)
    is_drawn = rows % 8 < 2
    return np.where(is_drawn, mask + 1, 0).astype(np.uint8)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folders with the names that the pages use."""
    root = tmp_path_factory.mktemp("docs")
    images, masks = make_demo_set(N_TRAIN + N_NEW, shape=(SIDE, SIDE))
    for number, (image, mask) in enumerate(zip(images, masks, strict=True), start=1):
        new = "" if number <= N_TRAIN else "new_"
        write_image(root / f"{new}images/{number}.png", image)
        write_mask(root / f"{new}masks/{number}.png", 255 * mask)
        write_mask(root / f"{new}class_masks/{number}.png", with_a_dark_class(image, mask))
        if not new:
            write_mask(root / f"scribbles/{number}.png", strokes(mask))
    cells = make_cell_set(N_TRAIN + N_NEW, shape=(SIDE_OF_CELLS, SIDE_OF_CELLS))
    for number, (image, labels) in enumerate(zip(*cells, strict=True), start=1):
        new = "" if number <= N_TRAIN else "new_"
        write_image(root / f"cells/{new}images/{number}.png", image)
        write_labels(root / f"cells/{new}masks/{number}.png", labels)
    pages = [np.round(65535 * image.mean(axis=2)).astype(np.uint16) for image in images]
    for folder, stack in (
        ("stacks", pages[:3]),
        ("new_stacks", pages[N_TRAIN:]),
        ("stack_masks", masks[:3]),
    ):
        (root / folder).mkdir()
        tifffile.imwrite(root / folder / "a.tif", np.stack(stack), photometric="minisblack")
    write_slide(root / "slide.zarr", root / "regions.geojson")
    return root


def write_slide(path, regions):
    """Write a small OME-Zarr, and outlines of two lesions and of two regions without one."""
    [image], [mask] = make_demo_set(1, shape=(SIDE, SIDE))
    image, mask = np.tile(image, (4, 4, 1)), np.tile(mask, (4, 4))
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    array = group.create_array("0", shape=(3, *mask.shape), chunks=(3, 64, 64), dtype="uint8")
    array[:] = np.round(255 * image).astype(np.uint8).transpose(2, 0, 1)
    axes = [{"name": name} for name in "cyx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [{"path": "0"}]}]}
    features = []
    for name, places in (("lesion", np.argwhere(mask == 1)), ("background", np.argwhere(mask == 0))):
        for row, col in places[[len(places) // 5, len(places) // 2]].tolist():
            ring = [[col, row], [col + 9, row], [col + 9, row + 9], [col, row + 9], [col, row]]
            geometry = {"type": "Polygon", "coordinates": [ring]}
            properties = {"objectType": "annotation", "classification": {"name": name}}
            features.append({"type": "Feature", "geometry": geometry, "properties": properties})
    regions.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


@pytest.fixture
def segkit(monkeypatch, capsys):
    """Run a line of the command line in this process; returns exit status, standard output and error."""

    def run(line):
        program, *arguments = shlex.split(line)
        assert program == "segkit", f"only segkit is run here: {line}"
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        monkeypatch.setattr("warnings.showwarning", None)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            commands.main()
        return stopped.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def says():
    """Tell whether a text is the quoted one, in which … stands for a number or a name."""

    def same(text, quoted):
        pattern = ".+?".join(map(re.escape, quoted.strip().split("…")))
        # Windows writes paths its own way
        return re.fullmatch(pattern, text.strip().replace("\\", "/")) is not None

    return same
