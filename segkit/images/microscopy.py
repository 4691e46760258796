"""Files of microscopes, CZI, ND2 and LIF, read by bioio, which is not installed with segkit itself."""

from __future__ import annotations

import math
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from segkit._common.memory import require_bytes
from segkit.errors import InputError
from segkit.images.axes import Layout

# Packages by extension, and how to install them. That of CZI is under the GPL, so segkit's own extra leaves it out.
READERS = {
    ".czi": ("bioio_czi", 'pip install "segkit-bio[microscopy]" bioio-czi (bioio-czi is under the GPL 3)'),
    ".lif": ("bioio_lif", 'pip install "segkit-bio[microscopy]"'),
    ".nd2": ("bioio_nd2", 'pip install "segkit-bio[microscopy]"'),
}


def is_microscopy(path: Path) -> bool:
    """Return whether a file is of a microscope's own format, by its extension."""
    return path.suffix.lower() in READERS


def check_reader(path: Path) -> None:
    """Refuse a file that the installed packages cannot read."""
    package, cure = READERS[path.suffix.lower()]
    if missing := [name for name in ("bioio", package) if find_spec(name) is None]:
        raise InputError(
            f"{', '.join(missing)} is not installed, which reads {path.suffix}: {cure}", source=path
        )


def read_array(path: Path) -> tuple[Any, str, Layout]:
    """Read an array, its axes and names of channels; scenes of one size become axis P."""
    image = _open(path)
    axes = image.dims.order
    scenes = []
    for scene in image.scenes:
        image.set_scene(scene)
        n_values = math.prod(image.shape)
        require_bytes(n_values * (image.dtype.itemsize + 4), what=f"{n_values:,} values", source=path)
        scenes.append(np.asarray(image.get_image_data(axes)))
    names = tuple(str(name) for name in image.channel_names or ())
    if len({scene.shape for scene in scenes}) > 1:
        sizes = " and ".join(sorted({" x ".join(map(str, scene.shape[-2:])) for scene in scenes}))
        raise InputError(
            f"{len(scenes)} scenes of different sizes ({sizes}): save each as a file", source=path
        )
    array, axes = np.stack(scenes), f"P{axes}"
    kept = [place for place, letter in enumerate(axes) if array.shape[place] > 1 or letter in "YX"]
    squeezed = array.reshape([array.shape[place] for place in kept])
    return squeezed, "".join(axes[place] for place in kept), Layout(channels=names if len(names) > 1 else ())


def read_lengths(path: Path) -> dict[str, float | None]:
    """Read the size of a pixel by axis, in micrometres; None where the file does not tell."""
    sizes = _open(path).physical_pixel_sizes
    return {axis: getattr(sizes, axis) for axis in "ZYX"}


def _open(path: Path) -> Any:
    package = READERS[path.suffix.lower()][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what readers say of their own parts
        return import_module("bioio").BioImage(path, reader=import_module(package).Reader)
