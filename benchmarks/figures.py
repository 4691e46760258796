"""Scores of `segkit demo`, and Figures 7 to 9 of the source paper (004) on other sets than the paper's.

    python -m benchmarks figures --data DATA [--weights WEIGHTS]

- demo: the scores that the command prints.
- embedding (Figure 7, docs/embedding.png): pixels of a test image in space, by t-SNE of all channels, of random features of
  Gaussian kernels of three widths, and of those of the recipe's own mixture of kernels.
- nuclei, sets (Figures 8 and 9, docs/maps-nuclei.png and docs/maps-sets.png): probability of the object at each pixel, and
  where prediction and truth differ, beside a pixel forest, and on nuclei the paper's rival, an FCN (FCN-8s, on SqueezeNet
  instead of VGG16). Pictures are shown of the nuclei only, for the licence of that set allows it.

Models are trained on five images, split 0. The images shown are the first test images of the split, not chosen. Without
weights neither networks nor the FCN are shown. Figure 10 is `comparisons.draw_spread`.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image
from sklearn.manifold import TSNE
from sklearn.metrics import balanced_accuracy_score
from sklearn.preprocessing import StandardScaler

from benchmarks.markdown import markdown_table
from benchmarks.rows import ROOT, Row, Study, flat
from benchmarks.segmentation import METHODS, QUICK, options_of, split, write_made_up
from segkit import LinearSVM
from segkit._common import pass_on
from segkit.benchmark import load_methods
from segkit.cli.demo import demo as run_demo
from segkit.evaluation.metrics import confusion, iou_of
from segkit.features.normalised import NormalisedBank
from segkit.images import Dataset, load_pairs
from segkit.images.sampling import PixelSample, draw_pixels
from segkit.kernels import Gaussian, RandomFourierFeatures
from segkit.kernels.base import median_gamma
from segkit.report.figures import COLOURS, MARKERS
from segkit.report.pictures import ERROR_COLOURS, Picture

SEED, N_TRAIN = 0, 5
EMBEDDED = ("dsb2018_stained", "kvasir_seg_256")
# Sets of each figure of maps, and how many test images are shown of each.
MAPPED = {
    "nuclei": (("dsb2018_stained",), 3),
    "sets": (("drive", "isbi2012_em", "kvasir_seg_256"), 1),
}
N_SHOWN, N_KNOWN, N_COMPONENTS = 600, 3000, 2048
# Multiples of the inverse median squared distance.
WIDTHS = {"wide Gaussian": 2.0**-6, "median Gaussian": 1.0, "narrow Gaussian": 2.0**6}
CHANNELS, MIXTURE = "all channels", "the recipe's mixture"
# Penalty of the linear SVM that scores features with a mean diagonal of 1: segkit's usual one.
PENALTY = 1e-3
SHORT = {
    "segkit-networks": "segkit, two networks",
    "segkit-no-networks": "segkit, no networks",
    "forest": "pixel forest",
    "fcn": "FCN",
}
# Of each method of the spread; the fifth colour is like the second in a file of few colours.
OF_METHODS = (*COLOURS[:4], *COLOURS[5:])
# Colours of a file, which keep it small.
_N_COLOURS = 48
_DPI = 110


class Embedding(NamedTuple):
    """Pixels in space: their class ids, and of each panel their places (n, 3)."""

    labels: NDArray[Any]
    panels: dict[str, NDArray[Any]]


class Trained(NamedTuple):
    """A trained method on a set, and the data."""

    set: str
    method: str
    model: Any
    dataset: Dataset
    train: list[str]
    test: list[str]

    def images(self, stems: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return images by name."""
        return [self.dataset.images[self.dataset.stems.index(stem)] for stem in stems]

    def ids(self, stems: Sequence[str]) -> list[NDArray[Any]]:
        """Return the true class ids of images by name."""
        masks = (self.dataset.masks[self.dataset.stems.index(stem)] for stem in stems)
        return [self.dataset.label_map.encode(mask) for mask in masks]

    def where(self, stem: str) -> dict[str, Any]:
        """Name the training and the image in a row."""
        return {
            "set": self.set,
            "method": self.method,
            "image": stem,
            "seed": SEED,
            "n_train": len(self.train),
        }


def measure_demo() -> dict[str, Any]:
    """Run the demo, and read its scores."""
    with tempfile.TemporaryDirectory() as temporary:
        run_demo(Path(temporary) / "demo")
        scores = json.loads((Path(temporary) / "demo" / "report" / "scores.json").read_text(encoding="utf-8"))
    lesion = scores["classes"][1]
    return {
        "n_images": scores["n_images"],
        "lesion_iou": lesion["iou"],
        "lesion_dice": lesion["dice"],
        "mean_iou": scores["mean_iou"],
        "interval": scores["interval"],
    }


@cache
def trained_on(study: Study, folder: Path, method: str) -> Trained:
    """Train a method on the training images of a set, once."""
    settings = QUICK if study.quick else [f"{method}.{option}" for option in options_of(method, study)]
    [made] = load_methods([method], None, [line for line in settings if line.startswith(f"{method}.")])
    dataset = load_pairs(folder / "images", folder / "masks")
    stems, test = split(folder, SEED, 2 if study.quick else N_TRAIN)
    trained = Trained(folder.name, method, made.build(SEED), dataset, stems, test)
    masks = [dataset.masks[dataset.stems.index(stem)] for stem in stems]
    trained.model.fit(trained.images(stems), masks, label_map=dataset.label_map)
    return trained


def embed(trained: Trained, n_shown: int, n_known: int) -> tuple[dict[str, Any], Embedding]:
    """Place pixels of the first test image in space, by several kernels.

    The accuracy on these pixels, balanced, is that of a linear SVM trained on the same features of training images.
    """
    model, stem = trained.model, trained.test[0]
    rng = np.random.default_rng(SEED)
    known, shown = (
        _Pixels(trained, stems, n_pixels, rng)
        for stems, n_pixels in ((trained.train, n_known), ([stem], n_shown))
    )
    scaler = StandardScaler().fit(known.channels)
    features = {CHANNELS: (scaler.transform(known.channels), scaler.transform(shown.channels))}
    gamma = median_gamma(known.kept, random_state=SEED)
    for title, factor in WIDTHS.items():
        # not a mixture, which refuses a kernel as narrow as the last one
        kernel = RandomFourierFeatures(Gaussian(factor * gamma), n_components=N_COMPONENTS, random_state=SEED)
        kernel.fit(known.kept)
        features[title] = (kernel.transform(known.kept), kernel.transform(shown.kept))
    mixture = model.classifier_.kernels_
    features[MIXTURE] = (mixture.transform(known.kept), mixture.transform(shown.kept))
    labels = known.drawn.label, shown.drawn.label
    return {
        "n_channels": known.channels.shape[1],
        "n_kept": known.kept.shape[1],
        "accuracy": {title: round(accuracy(*pair, *labels), 4) for title, pair in features.items()},
    }, Embedding(labels[1], {title: _places(pair[1]) for title, pair in features.items()})


class _Pixels:
    """Pixels of some images: all channels, and those that the model keeps, standardised."""

    def __init__(
        self, trained: Trained, stems: Sequence[str], n_pixels: int, rng: np.random.Generator
    ) -> None:
        model, images = trained.model, trained.images(stems)
        self.drawn: PixelSample = draw_pixels(trained.ids(stems), model.classes_.size, n_pixels, rng)
        bank = NormalisedBank(model.bank_)
        [self.channels] = bank.sample_draws(images, [self.drawn], None, pass_on, "")
        self.kept = model.classifier_.standardise(self.channels.take(model.classifier_.channels_, axis=1))


def accuracy(X: NDArray[Any], Z: NDArray[Any], y: NDArray[Any], truth: NDArray[Any]) -> float:
    """Train a linear SVM on features X, scaled to a mean diagonal of 1, and score it on Z."""
    scale = np.sqrt(np.mean(np.sum(np.square(X, dtype=np.float64), axis=1)))
    svm = LinearSVM(C=1 / (len(X) * PENALTY)).fit(X / scale, y)
    return float(balanced_accuracy_score(truth, svm.predict(Z / scale)))


def _places(features: NDArray[Any]) -> NDArray[Any]:
    perplexity = min(30.0, (len(features) - 1) / 3)
    return TSNE(3, perplexity=perplexity, init="pca", random_state=SEED).fit_transform(features)


def predict(trained: Trained, n_images: int) -> Iterator[tuple[str, float, Picture]]:
    """Yield name, mean IoU and picture of the first test images."""
    stems = trained.test[:n_images]
    for stem, image, truth in zip(stems, trained.images(stems), trained.ids(stems), strict=True):
        segmented = trained.model.segment(image)
        found = trained.dataset.label_map.encode(segmented.labels)
        iou = float(np.nanmean(iou_of(confusion(truth, found, 2))))
        yield stem, round(iou, 4), Picture(image, truth, found, segmented.probability)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-steps", type=int, default=400, help="of the FCN")
    parser.add_argument("--device", default="auto", help="of the FCN")


def run(study: Study) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        embedded, mapped, size, pictures = EMBEDDED, MAPPED, (N_SHOWN, N_KNOWN), ROOT / "docs"
        if study.quick:
            embedded, mapped, size = ("made-up",), {"nuclei": (("made-up",), 1)}, (40, 200)
            pictures = study.out
            study.data = Path(temporary)
            write_made_up(study.data / "made-up")
        else:
            study.row({}, measure_demo, what="demo")
        with_networks = study.weights and not study.quick
        methods = METHODS if with_networks else METHODS[1:]

        def trained(name: str, method: str) -> Trained:
            return trained_on(study, study.folder(name), method)

        drawn = []
        for name in embedded:
            for method in (method for method in methods if method != "forest"):
                own = trained(name, method)
                figures, points = embed(own, *size)
                row = study.row(own.where(own.test[0]), lambda figures=figures: figures, what="embedding")
                drawn.append((*flat([row]), points))
        draw_embeddings(drawn, pictures / "embedding.png")
        for figure, (names, n_images) in mapped.items():
            pairs = []
            for name in names:
                for method in (*methods, "fcn") if with_networks and figure == "nuclei" else methods:
                    for stem, iou, picture in predict(trained(name, method), n_images):
                        where = trained(name, method).where(stem)
                        row = study.row(where, lambda iou=iou: {"mean_iou": iou}, what=figure)
                        pairs.append((*flat([row]), picture))
            draw_maps(pairs, pictures / f"maps-{figure}.png", with_image=figure == "nuclei")


def draw_embeddings(rows: Sequence[tuple[Mapping[str, Any], Embedding]], path: Path) -> None:
    """Draw pixels in space, a row for each set and recipe, a column for each kernel."""
    titles = list(rows[0][1].panels)
    figure = Figure(figsize=(2 * len(titles), 2.25 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), len(titles), squeeze=False, subplot_kw={"projection": "3d"})
    for (row, found), of_row in zip(rows, axes, strict=True):
        for title, place in zip(titles, of_row, strict=True):
            for index, name in enumerate(("background", "object")):
                own = found.panels[title][found.labels == index]
                colour = COLOURS[index]
                place.scatter(*own.T, s=7, marker=MARKERS[index], color=colour, alpha=0.7, lw=0, label=name)
            place.set(xticks=[], yticks=[], zticks=[], box_aspect=(1, 1, 1))
            told = f"{100 * row['accuracy'][title]:.0f} % right"
            place.text2D(0.5, -0.06, told, transform=place.transAxes, fontsize=9, ha="center")
        of_row[0].text2D(
            -0.05,
            0.5,
            f"{row['set']}\n{SHORT[row['method']]}",
            transform=of_row[0].transAxes,
            fontsize=9,
            rotation=90,
            ha="right",
            va="center",
            multialignment="center",
        )
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


def demo(rows: list[Row]) -> str:
    [found] = flat(rows, "demo")
    low, high = found["interval"]
    return (
        f"Demo, {found['n_images']} test pictures: lesion IoU {found['lesion_iou']:.3f}, lesion Dice "
        f"{found['lesion_dice']:.3f}, mean IoU {found['mean_iou']:.3f} (95 % interval {low:.3f} to {high:.3f})."
    )


def embedding(rows: list[Row]) -> str:
    """Tabulate how well a linear SVM separates what each panel of the figure of pixels in space shows."""
    found = flat(rows, "embedding")
    lines = [
        (
            row["set"],
            row["image"],
            SHORT[row["method"]],
            f"{row['n_channels']:,}, {row['n_kept']:,}",
            *(f"{100 * share:.0f} %" for share in row["accuracy"].values()),
        )
        for row in found
    ]
    return markdown_table(("set", "image", "recipe", "channels, kept", *found[0]["accuracy"]), lines)


def maps(rows: list[Row]) -> str:
    """Tabulate the mean IoU of each method on the images of the figures of maps."""
    shown = [row for kind in MAPPED for row in flat(rows, kind)]
    found = {(row["set"], row["image"], row["method"]): row["mean_iou"] for row in shown}
    cells = [
        (*image, *(f"{found[key]:.3f}" if (key := (*image, method)) in found else "" for method in SHORT))
        for image in dict.fromkeys(key[:2] for key in found)
    ]
    return markdown_table(("set", "image", *SHORT.values()), cells)


TABLES = {"demo": demo, "embedding": embedding, "maps": maps}
