"""Figures of the report as inline SVG, with text and axes in the text colour of the page."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import matplotlib.style
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.patches import PathPatch

from segkit.report.summary import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Safe for colour-blind readers, with a contrast of at least 3 to 1 on white and on near-black.
COLOURS = ("#2b7fc4", "#d55e00", "#009e73", "#b8589c", "#a07d00", "#7a7a7a", "#7b61c9", "#a0603f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "*")
# Stands for the text colour of the page, which is not known yet. Nothing else may use it.
_INK = "#010203"
_STYLE: dict[str, Any] = {
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 0.8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 10.5,
    "grid.color": _INK,
    "grid.alpha": 0.14,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.markersize": 6.5,
    "svg.fonttype": "none",
    "text.color": _INK,
    "text.parse_math": False,  # names may hold dollar signs
    "axes.unicode_minus": True,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "ytick.left": True,
}
_LONGEST_LABEL = 24
# Inches. Narrow figures keep their text readable on a phone.
_WIDTH, _PANEL = 5.8, 4.5
# Square points of the marker of an almost empty bin, and of a bin with all pixels.
_MARKER_AREAS = (6, 90)
# More points than this are drawn as a bitmap, to keep the page small.
_CROWD = 2000


@dataclass(frozen=True)
class Look:
    """Name, colour and marker of a method in all figures."""

    title: str
    colour: str
    marker: str


def looks(titles: Mapping[str, str]) -> dict[str, Look]:
    """Choose a colour and a marker for each method."""
    return {
        method: Look(title, COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)])
        for index, (method, title) in enumerate(titles.items())
    }


def draw_key(look: Look) -> str:
    """Draw the line and marker of a method for a legend."""
    with _drawing("key", (0.36, 0.2), "") as canvas:
        axes = canvas.figure.subplots()
        marker = MarkerStyle(look.marker)
        outline = marker.get_path().transformed(marker.get_transform())
        # A patch, not a marker: markers carry an id, and the key occurs many times in the page.
        axes.add_patch(PathPatch(outline, facecolor=look.colour, linewidth=0, clip_on=False))
        axes.plot([-1.5, 1.5], [0, 0], color=look.colour, clip_on=False)
        axes.set(xlim=(-1.5, 1.5), ylim=(-0.6, 0.6), aspect="equal")
        axes.set_axis_off()
    return canvas.svg


def draw_learning_curve(
    rows: Sequence[Row],
    looks: Mapping[str, Look],
    *,
    single_class: tuple[str, float] | None = None,
    of_objects: bool = False,
) -> str:
    """Draw mean IoU or object IoU against the number of annotated images, with intervals."""
    name = "Object IoU" if of_objects else "Mean IoU"
    label = f"{name} of each method against the number of annotated images, with 95 % intervals"
    sizes = sorted({row.n_train for row in rows})
    with _drawing(f"learning curve {name}", (_WIDTH, 3.9), label) as canvas:
        axes = canvas.figure.subplots()
        methods = list(dict.fromkeys(row.method for row in rows))
        for index, method in enumerate(methods):
            score = "object_iou" if of_objects else "mean_iou"
            known = [
                (row.n_train, getattr(row, score), *interval)
                for row in rows
                if row.method == method and (interval := getattr(row, f"{score}_interval"))
            ]
            if not known:
                continue
            # Shift the methods apart, so that no interval hides another.
            shift = 0.035 * (index - (len(methods) - 1) / 2)
            size, mean, low, high = np.array(known).T
            axes.plot(size * np.exp(shift), mean, color=looks[method].colour, marker=looks[method].marker)
            axes.vlines(
                size * np.exp(shift), low, high, color=looks[method].colour, linewidth=1.4, alpha=0.75
            )
        if single_class is not None:
            _draw_single_class(axes, *single_class)
        axes.set(xscale="log", xlabel="annotated images", ylabel=name, ylim=(None, _top_limit(axes)))
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.grid(axis="y")
    return canvas.svg


def _draw_single_class(axes: Axes, name: str, score: float) -> None:
    low, high = axes.get_ylim()
    if score > low - (high - low):
        axes.axhline(score, color=_INK, alpha=0.6, linewidth=1, linestyle=(0, (1, 3)))
        axes.annotate(
            f"every pixel\n{_short(name)}",
            (1, score),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )


def draw_spread(scores: Mapping[str, Sequence[float]], looks: Mapping[str, Look], *, low: float) -> str:
    """Draw the mean IoU of every test image, and a box around the middle half, for each method."""
    label = "Mean IoU of each test image for " + ", ".join(looks[method].title for method in scores)
    with _drawing(f"spread {label} {scores}", (_PANEL, 0.7 + 0.42 * len(scores)), label) as canvas:
        axes = canvas.figure.subplots()
        for row, (method, values) in enumerate(scores.items()):
            look = looks[method]
            # Golden-section offsets spread points evenly, and are the same every time.
            offset = 0.52 * ((np.arange(len(values)) * 0.618) % 1 - 0.5)
            crowded = len(values) > _CROWD
            axes.scatter(
                values,
                row + offset,
                s=18,
                marker=look.marker,
                color=look.colour,
                alpha=0.6,
                lw=0,
                rasterized=crowded,
            )
            _draw_box(axes, row, values)
        axes.set(xlim=(low, 1.005), ylim=(len(scores) - 0.45, -0.55), xlabel="mean IoU of a test image")
        axes.set_yticks(range(len(scores)), [_short(looks[method].title) for method in scores])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
    return canvas.svg


def draw_bars(values: Mapping[str, float], xlabel: str, label: str) -> str:
    """Draw one bar for each name, from top to bottom."""
    with _drawing(f"{label} {values}", (_PANEL, 0.7 + 0.26 * len(values)), label) as canvas:
        axes = canvas.figure.subplots()
        bars = axes.barh(range(len(values)), list(values.values()), height=0.66, color=COLOURS[0])
        axes.bar_label(bars, [f"{value:.3g}" for value in values.values()], padding=4)
        axes.set(xlabel=xlabel, ylim=(len(values) - 0.4, -0.6))
        axes.margins(x=0.15)
        axes.locator_params(axis="x", nbins=5)
        axes.set_yticks(range(len(values)), [_short(name) for name in values])
        axes.tick_params(axis="y", length=0)
    return canvas.svg


def draw_bandwidth_curve(kernels: Sequence[Mapping[str, Any]], criterion: str, label: str) -> str:
    """Draw the score of kernels against their bandwidth parameter gamma."""
    families: dict[str, list[tuple[float, float]]] = {}
    for kernel in kernels:
        families.setdefault(kernel["name"].split(" ")[0], []).append((kernel["gamma"], kernel["score"]))
    with _drawing(f"{label} {families}", (_PANEL, 3.0), label) as canvas:
        axes = canvas.figure.subplots()
        for index, (family, points) in enumerate(families.items()):
            gamma, score = np.array(sorted(points)).T
            axes.plot(gamma, score, color=COLOURS[index % len(COLOURS)], marker=MARKERS[index % len(MARKERS)])
            axes.annotate(
                _short(family),
                (gamma[np.argmax(score)], score.max()),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
            )
        axes.set(xscale="log", xlabel="γ (log scale)", ylabel=criterion)
        axes.xaxis.set_major_formatter(lambda gamma, _: f"{gamma:g}")
        axes.minorticks_off()
        axes.margins(x=0.1, y=0.18)
        axes.grid(axis="y")
    return canvas.svg


def draw_embedding(panel: Mapping[str, Any], names: Sequence[str], label: str) -> str:
    """Draw pixels in the plane found by t-SNE of their random features, coloured by class."""
    xy, classes = np.array(panel["xy"]), np.array(panel["label"])
    with _drawing(f"{label} {xy.sum()}", (3.6, 3.8), label) as canvas:
        axes = canvas.figure.subplots()
        for index, name in enumerate(names):
            points = xy[classes == index]
            axes.scatter(
                points[:, 0],
                points[:, 1],
                s=13,
                marker=MARKERS[index % len(MARKERS)],
                color=COLOURS[index % len(COLOURS)],
                alpha=0.8,
                lw=0,
                label=_short(name),
                rasterized=len(xy) > _CROWD,
            )
        axes.set(xticks=[], yticks=[], aspect="equal", box_aspect=1)
        axes.spines[["left", "bottom"]].set_visible(False)
        canvas.figure.legend(loc="outside lower center", ncols=3, frameon=False, handletextpad=0.1)
    return canvas.svg


def draw_reliability(sums: Mapping[str, Mapping[str, Sequence[float]]], looks: Mapping[str, Look]) -> str:
    """Draw the share of pixels of a class against the probability given."""
    label = "Share of pixels that are of the class against the probability given, for each method"
    with _drawing("reliability", (4.6, 4.2), label) as canvas:
        axes = canvas.figure.subplots()
        axes.plot([0, 1], [0, 1], color=_INK, alpha=0.45, linewidth=1, linestyle=(0, (4, 4)))
        for method, entry in sums.items():
            count = np.array(entry["count"])
            filled = count > 0
            given, found = (np.array(entry[key])[filled] / count[filled] for key in ("probability", "hits"))
            look = looks[method]
            axes.plot(given, found, color=look.colour, linewidth=1, alpha=0.5)
            areas = np.interp(np.sqrt(count[filled] / count.sum()), (0, 1), _MARKER_AREAS)
            axes.scatter(given, found, areas, color=look.colour, marker=look.marker, linewidth=0, zorder=3)
        axes.set(
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
            aspect="equal",
            xlabel="probability given",
            ylabel="share of pixels that were of the class",
        )
        axes.grid()
    return canvas.svg


def _draw_box(axes: Axes, row: int, values: Sequence[float]) -> None:
    """Draw a box of quartiles and median, with whiskers to the last point within 1.5 box lengths."""
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    reach = np.asarray(values)
    reach = reach[(reach >= low - 1.5 * (high - low)) & (reach <= high + 1.5 * (high - low))]
    axes.barh(row, high - low, left=low, height=0.6, facecolor="none", edgecolor=_INK, linewidth=1.1)
    axes.hlines([row, row], [reach.min(), high], [low, reach.max()], color=_INK, linewidth=1.1)
    axes.vlines(median, row - 0.3, row + 0.3, color=_INK, linewidth=2.4)


def _top_limit(axes: Axes) -> float:
    """End the axis at an IoU of 1, with room for a marker."""
    return min(axes.get_ylim()[1], 1.01)


def _short(name: str) -> str:
    """Shorten a name to fit beside an axis."""
    printable = _printable(name)
    return printable if len(printable) <= _LONGEST_LABEL else printable[: _LONGEST_LABEL - 1] + "…"


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


class _Canvas:
    """A figure and its SVG."""

    def __init__(self, size: tuple[float, float]) -> None:
        self.figure = Figure(figsize=size, layout="constrained")
        self.svg = ""


@contextmanager
def _drawing(salt: str, size: tuple[float, float], label: str) -> Iterator[_Canvas]:
    """Return a canvas in the report's style; its `svg` is set at the end of the block."""
    style = _STYLE | {"svg.hashsalt": ascii(salt)}
    with matplotlib.style.context(style, after_reset=True), warnings.catch_warnings():
        # The fonts of the page have the glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        canvas = _Canvas(size)
        yield canvas
        buffer = io.BytesIO()
        canvas.figure.savefig(buffer, format="svg")
        canvas.svg = Markup(_inline(buffer.getvalue(), label))  # not escaped again in the page


def _inline(svg: bytes, label: str) -> str:
    """Turn an SVG file into an element of a page: without metadata and unused ids, in the page's text colour."""
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith("}metadata"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.split("}")[-1]
        element.attrib = {
            name.split("}")[-1]: value.replace(_INK, "currentColor") for name, value in element.attrib.items()
        }
    used = {
        value.split("#")[-1].rstrip(")")
        for element in root.iter()
        for value in element.attrib.values()
        if "#" in value
    }
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
    root.attrib |= {"role": "img", "aria-label": _printable(label)} if label else {"aria-hidden": "true"}
    return ElementTree.tostring(root, encoding="unicode")
