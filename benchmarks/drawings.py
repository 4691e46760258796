"""Drawings of pixels in the plane, and of decisions and their faults; `benchmarks.figures` measures what they show."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from segkit.report.figures import COLOURS, MARKERS
from segkit.report.pictures import ERROR_COLOURS, Picture

SHORT = {
    "segkit-networks": "segkit, two networks",
    "segkit-no-networks": "segkit, no networks",
    "forest": "pixel forest",
}
# Of each method of the spread; the fifth colour is like the second in a file of few colours.
OF_METHODS = (*COLOURS[:4], *COLOURS[5:])
# Colours of a file, which keep it small.
_N_COLOURS = 48
_DPI = 110


class Embedding(NamedTuple):
    """Pixels in the plane: their class ids, and of each panel their places (n, 2)."""

    labels: NDArray[Any]
    panels: dict[str, NDArray[Any]]


def draw_embeddings(rows: Sequence[tuple[Mapping[str, Any], Embedding]], path: Path) -> None:
    """Draw pixels in the plane, a row for each set and recipe, a column for each kernel."""
    titles = list(rows[0][1].panels)
    figure = Figure(figsize=(2 * len(titles), 2.25 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    for (row, found), of_row in zip(rows, axes, strict=True):
        for title, place in zip(titles, of_row, strict=True):
            for index, name in enumerate(("background", "object")):
                own = found.panels[title][found.labels == index]
                colour = COLOURS[index]
                place.scatter(*own.T, s=7, marker=MARKERS[index], color=colour, alpha=0.7, lw=0, label=name)
            place.set(xticks=[], yticks=[], box_aspect=1)
            place.set_xlabel(f"{100 * row['accuracy'][title]:.0f} % right", fontsize=9)
            place.spines[:].set_color("0.8")
        of_row[0].set_ylabel(f"{row['set']}\n{SHORT[row['method']]}", fontsize=9)
    for title, place in zip(titles, axes[0], strict=True):
        place.set_title(title, fontsize=10)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        markerscale=2,
    )
    save(figure, path)


def draw_maps(pairs: Sequence[tuple[Mapping[str, Any], Picture]], path: Path, *, with_image: bool) -> None:
    """Draw probabilities and faults, a row for each image, two columns for each method.

    Parameters
    ----------
    pairs : sequence of tuple
        Row of the result file and `Picture` of each method and image.
    path : Path
        PNG file to write.
    with_image : bool
        Whether to show the images themselves.
    """
    found = {(row["set"], row["image"], row["method"]): (row, picture) for row, picture in pairs}
    images = list(dict.fromkeys(key[:2] for key in found))
    methods = list(dict.fromkeys(method for *_, method in found))
    n_columns = 2 * len(methods) + with_image
    shapes = [picture.truth.shape for _, picture in pairs[:: len(methods)]]
    width = 8.7 / n_columns  # beside the colour bar
    height = sum(width * rows / columns + 0.22 for rows, columns in shapes[: len(images)])
    figure = Figure(figsize=(10, height + 0.9), layout="constrained")
    axes = figure.subplots(len(images), n_columns, squeeze=False)
    for (name, image), of_row in zip(images, axes, strict=True):
        places = list(of_row)
        _, picture = found[name, image, methods[0]]
        if with_image:
            places.pop(0).imshow(picture.image)
        for method, probable, wrong in zip(methods, places[::2], places[1::2], strict=True):
            row, picture = found[name, image, method]
            heat = probable.imshow(_object_probability(picture), cmap="magma", vmin=0, vmax=1)
            wrong.imshow(faults(picture))
            wrong.set_xlabel(f"mean IoU {row['mean_iou']:.2f}", fontsize=8)
        of_row[0].set_ylabel(name if not with_image else image[:8], fontsize=8)
    for place in axes.flat:
        place.set(xticks=[], yticks=[])
        place.spines[:].set_visible(False)
    if with_image:
        axes[0, 0].set_title("image", fontsize=9)
    for method, probable, wrong in zip(
        methods, axes[0, with_image::2], axes[0, with_image + 1 :: 2], strict=True
    ):
        probable.set_title(f"{SHORT[method]}:\nprobability", fontsize=9)
        wrong.set_title("\nfaults", fontsize=9)
    figure.colorbar(heat, ax=axes, shrink=0.6, aspect=30, label="probability of the object")
    keys = {"found": _GROUND["right"], "missed": ERROR_COLOURS["missed"], "false": ERROR_COLOURS["false"]}
    figure.legend(
        handles=[Patch(color=np.array(colour) / 255, label=name) for name, colour in keys.items()],
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    save(figure, path)


_GROUND = {"background": (40, 40, 40), "right": (235, 235, 235)}


def faults(picture: Picture) -> NDArray[np.uint8]:
    """Colour where prediction and truth differ, (H, W, 3): object missed, and background called object."""
    true, found = picture.truth == 1, picture.prediction == 1
    pixels = np.empty((*true.shape, 3), dtype=np.uint8)
    pixels[:] = _GROUND["background"]
    pixels[true & found] = _GROUND["right"]
    pixels[true & ~found] = ERROR_COLOURS["missed"]
    pixels[~true & found] = ERROR_COLOURS["false"]
    return pixels


def _object_probability(picture: Picture) -> NDArray[np.float64]:
    """Return the probability of the object in 32 steps, which keeps the file small."""
    if picture.probability is None:
        raise SystemExit("a method without probabilities has no heat map")
    return np.round(31 * picture.probability[:, :, 1].astype(float)) / 31


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of few colours, which is small."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=_DPI)
    image = Image.open(buffer).convert("RGB").quantize(_N_COLOURS, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
