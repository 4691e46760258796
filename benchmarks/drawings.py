"""Figures of the source paper (004): pixels in the plane, decisions and their faults, spread over test images.

`benchmarks.figures` measures what they show; the tables of their numbers are here too.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from benchmarks.common import markdown_table
from benchmarks.segmentation import scores_of
from segkit.report.figures import COLOURS, MARKERS
from segkit.report.pictures import ERROR_COLOURS, Picture

EMBEDDING, SPREAD = "embedding.png", "spread.png"
MAPS = {"nuclei": "maps-nuclei.png", "sets": "maps-sets.png"}
# Methods of the spread, in the order of rows, by a short name; numbers of training images, in that of columns.
SHORT = {
    "segkit-networks": "segkit, two networks",
    "segkit-no-networks": "segkit, no networks",
    "segkit-paper": "paper's recipe (VGG19)",
    "forest": "pixel forest",
    "fcn-vgg19": "FCN-8s (VGG19)",
    "fcn": "FCN-8s (SqueezeNet)",
}
SIZES = (1, 5, 15)
# Of each method of the spread; the fifth colour is like the second in a file of few colours.
_OF_METHODS = (*COLOURS[:4], *COLOURS[5:])
# Colours of a file, which keep it small.
_N_COLOURS = 48
_DPI = 110


def draw_embeddings(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw pixels in the plane, a row for each set and recipe, a column for each kernel."""
    n_columns = len(rows[0]["panels"])
    figure = Figure(figsize=(2 * n_columns, 2.25 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), n_columns, squeeze=False)
    for row, of_row in zip(rows, axes, strict=True):
        labels = np.array(row["label"])
        for panel, place in zip(row["panels"], of_row, strict=True):
            points = np.array(panel["xy"])
            for index, name in enumerate(("background", "object")):
                own = points[labels == index]
                place.scatter(
                    *own.T, s=7, marker=MARKERS[index], color=COLOURS[index], alpha=0.7, lw=0, label=name
                )
            place.set(xticks=[], yticks=[], box_aspect=1)
            place.set_xlabel(f"{100 * panel['accuracy']:.0f} % right", fontsize=9)
            place.spines[:].set_color("0.8")
        of_row[0].set_ylabel(f"{row['set']}\n{SHORT[row['method']]}", fontsize=9)
    for panel, place in zip(rows[0]["panels"], axes[0], strict=True):
        place.set_title(panel["title"], fontsize=10)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        markerscale=2,
    )
    _save(figure, path)


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
    _save(figure, path)


_GROUND = {"background": (40, 40, 40), "right": (235, 235, 235)}


def embedding(result: Mapping[str, Any]) -> str:
    """Tell the images of the figure of pixels in the plane, and how well a linear SVM separates what each panel shows."""
    rows = [row for row in result["rows"] if row["figure"] == "embedding"]
    titles = [panel["title"] for panel in rows[0]["panels"]]
    header = ("set", "image", "recipe", "channels, kept", *titles)
    return markdown_table(
        header,
        [
            (
                row["set"],
                row["image"],
                SHORT[row["method"]],
                f"{row['n_channels']:,}, {row['n_kept']:,}",
                *(f"{100 * panel['accuracy']:.0f} %" for panel in row["panels"]),
            )
            for row in rows
        ],
    ).rstrip()


def maps(result: Mapping[str, Any]) -> str:
    """Tell the images of the figures of maps, and the mean IoU of each method on them."""
    rows = [row for row in result["rows"] if row["figure"] in MAPS]
    found = {(row["set"], row["image"], row["method"]): row["mean_iou"] for row in rows}
    methods = [method for method in SHORT if any(row["method"] == method for row in rows)]
    cells = [
        (
            *image,
            *(f"{found[(*image, method)]:.3f}" if (*image, method) in found else "" for method in methods),
        )
        for image in dict.fromkeys(key[:2] for key in found)
    ]
    return markdown_table(("set", "image", *(SHORT[method] for method in methods)), cells).rstrip()


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
    """Give the probability of the object in 32 steps, which keeps the file small."""
    if picture.probability is None:
        raise SystemExit("a method without probabilities has no heat map")
    return np.round(31 * picture.probability[:, :, 1].astype(float)) / 31


def spread_of(
    scores: Mapping[tuple[str, int], Mapping[tuple[int, str], float]], n_train: int
) -> tuple[dict[str, list[float]], int]:
    """Give the mean IoU of single test images by method, and the number of splits: those that all methods ran."""
    own = {method: scores[method, n_train] for method in SHORT if (method, n_train) in scores}
    shared = sorted(set.intersection(*(set(found) for found in own.values()))) if own else []
    return {method: [found[key] for key in shared] for method, found in own.items()}, len(
        {seed for seed, _ in shared}
    )


def draw_spread(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the mean IoU of each test image, and a box of its quartiles, a row for each set, a column for each size."""
    figure = Figure(figsize=(10, 9.6), layout="constrained")
    panels = figure.subplots(len(results), len(SIZES), sharex="row", sharey=True, squeeze=False)
    for result, of_row in zip(results, panels, strict=True):
        name, scores = result["name"].removeprefix("segmentation-"), scores_of(dict(result))
        for n_train, axes in zip(SIZES, of_row, strict=True):
            found, n_splits = spread_of(scores, n_train)
            for place, method in enumerate(SHORT):
                if method in found:
                    _draw_row(axes, place, found[method], _OF_METHODS[place])
                else:
                    axes.text(
                        0.02, place, "not run", transform=axes.get_yaxis_transform(), va="center", color="0.4"
                    )
            images = f"{n_train} training image{'s' * (n_train > 1)}"
            axes.set_title(f"{images}, {n_splits} split{'s' * (n_splits > 1)}", fontsize=9, loc="right")
            axes.grid(axis="x", alpha=0.3)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
        of_row[0].set_title(name, x=-0.02, ha="right", fontsize=10, fontweight="bold")
    panels[0, 0].set_yticks(range(len(SHORT)), list(SHORT.values()))
    panels[0, 0].set_ylim(len(SHORT) - 0.5, -0.5)
    for axes in panels[-1]:
        axes.set_xlabel("mean IoU of a test image")
    _save(figure, path)


def _draw_row(axes: Axes, place: int, values: Sequence[float], colour: str) -> None:
    """Draw a point for each value, and a box of their quartiles."""
    # golden-section offsets spread points evenly, and are the same every time
    offsets = 0.6 * ((np.arange(len(values)) * 0.618) % 1 - 0.5)
    axes.scatter(values, place + offsets, s=7, color=colour, lw=0)
    [box] = boxplot_stats(values)
    axes.barh(place, box["q3"] - box["q1"], left=box["q1"], height=0.62, fill=False, linewidth=1)
    axes.hlines(
        [place, place], [box["whislo"], box["q3"]], [box["q1"], box["whishi"]], color="black", linewidth=1
    )
    axes.vlines(box["med"], place - 0.31, place + 0.31, color="black", linewidth=2.2)


def _save(figure: Figure, path: Path) -> None:
    """Write a PNG of few colours, which is small."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=_DPI)
    image = Image.open(buffer).convert("RGB").quantize(_N_COLOURS, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
