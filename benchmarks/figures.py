"""Figures 7 to 10 of the source paper (004), on other sets than the paper's.

    python -m benchmarks.figures --data DATA [--vgg19 VGG19.npz --squeezenet SQUEEZENET.npz]
        [--figures embedding nuclei sets spread] [--quick] [--out FOLDER]

- embedding (Figure 7, docs/embedding.png): pixels of a test image in the plane, by t-SNE of all channels, of random features
  of Gaussian kernels of three widths, and of those of the recipe's own mixture of kernels.
- nuclei, sets (Figures 8 and 9, docs/maps-nuclei.png and docs/maps-sets.png): probability of the object at each pixel, and
  where prediction and truth differ. The paper's rival there, an FCN, is not trained anew. Pictures are shown of the nuclei
  only, for the licence of that set allows it.
- spread (Figure 10, docs/spread.png): mean IoU of single test images, from the committed segmentation-SET.json;
  `python -m benchmarks.readme` draws it too.

Models are trained on five images, split 0. The images shown are the first test images of the split, not chosen. Without
weights no network is shown. Positions and scores are kept in figures.json, a row for each training.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.metrics import balanced_accuracy_score
from sklearn.preprocessing import StandardScaler

from benchmarks.common import RESULTS, digest_sources, split, write_rows
from benchmarks.drawings import EMBEDDING, MAPS, SPREAD, draw_embeddings, draw_maps, draw_spread
from benchmarks.segmentation import METHODS, QUICK, overrides_of, write_made_up
from segkit import LinearSVM
from segkit._common import pass_on
from segkit.benchmark import load_methods
from segkit.evaluation.metrics import confusion, iou_of
from segkit.features.normalised import NormalisedBank
from segkit.images import Dataset, load_pairs
from segkit.images.sampling import PixelSample, draw_pixels
from segkit.kernels import MixtureRFF
from segkit.kernels.base import median_gamma
from segkit.report.pictures import Picture

DOCS = Path(__file__).parents[1] / "docs"
FIGURES = ("embedding", "nuclei", "sets", "spread")
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
# Penalty of the linear SVM that judges features with a mean diagonal of 1: segkit's usual one.
PENALTY = 1e-3


class Trained(NamedTuple):
    """A trained method on a set, and the data."""

    set: str
    method: str
    model: Any
    dataset: Dataset
    train: list[str]
    test: list[str]

    def images(self, stems: Sequence[str]) -> list[NDArray[np.float32]]:
        """Give images by name."""
        return [self.dataset.images[self.dataset.stems.index(stem)] for stem in stems]

    def ids(self, stems: Sequence[str]) -> list[NDArray[Any]]:
        """Give the true class ids of images by name."""
        masks = (self.dataset.masks[self.dataset.stems.index(stem)] for stem in stems)
        return [self.dataset.label_map.encode(mask) for mask in masks]

    def row(self, figure: str, stem: str) -> dict[str, Any]:
        """Name the training and the image in the result file."""
        return {
            "figure": figure,
            "set": self.set,
            "method": self.method,
            "image": stem,
            "seed": SEED,
            "n_train": len(self.train),
            "sources": digest_sources(),
        }


class Models:
    """Methods trained on sets, each once.

    Parameters
    ----------
    arguments : argparse.Namespace
        Options of the command.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self._known: dict[tuple[str, str], Trained] = {}

    def __call__(self, name: str, method: str) -> Trained:
        """Give a method trained on the training images of a set."""
        if (name, method) not in self._known:
            self._known[name, method] = self._train(name, method)
        return self._known[name, method]

    def _train(self, name: str, method: str) -> Trained:
        own = argparse.Namespace(**vars(self.arguments) | {"methods": [method]})
        quick = [option for option in QUICK if option.startswith(f"{method}.")]
        [made] = load_methods([method], None, quick if own.quick else overrides_of(own))
        folder = own.data / name
        dataset = load_pairs(folder / "images", folder / "masks")
        stems, test = split(folder, SEED, 2 if own.quick else N_TRAIN)
        trained = Trained(name, method, made.build(SEED), dataset, stems, test)
        masks = [dataset.masks[dataset.stems.index(stem)] for stem in stems]
        trained.model.fit(trained.images(stems), masks, label_map=dataset.label_map)
        print(f"{name}: {method} trained", flush=True)
        return trained


def embed(trained: Trained, n_shown: int, n_known: int) -> dict[str, Any]:
    """Place pixels of the first test image in the plane, by several kernels.

    Parameters
    ----------
    trained : Trained
        A trained `Segmenter`, and its data.
    n_shown, n_known : int
        Pixels of the test image, and of the training images for a linear classifier; balanced over the classes.

    Returns
    -------
    dict
        Row of the result file: the class of each pixel and, of each panel, title, positions, and the balanced accuracy on
        these pixels of a linear SVM that was trained on the same features of training images.
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
        kernel = MixtureRFF(gammas=[factor * gamma], n_components=N_COMPONENTS, random_state=SEED)
        kernel.fit(known.kept, known.drawn.label)
        features[title] = (kernel.transform(known.kept), kernel.transform(shown.kept))
    mixture = model.classifier_.kernels_
    features[MIXTURE] = (mixture.transform(known.kept), mixture.transform(shown.kept))
    labels = known.drawn.label, shown.drawn.label
    panels = [
        {"title": title, "accuracy": round(accuracy(*pair, *labels), 4), "xy": _plane(pair[1])}
        for title, pair in features.items()
    ]
    own = {"n_channels": known.channels.shape[1], "n_kept": known.kept.shape[1]}
    return trained.row("embedding", stem) | own | {"label": labels[1].tolist(), "panels": panels}


class _Pixels:
    """Pixels of some images: all channels, and those that the model keeps, standardised."""

    def __init__(
        self, trained: Trained, stems: Sequence[str], n_pixels: int, rng: np.random.Generator
    ) -> None:
        model, images = trained.model, trained.images(stems)
        self.drawn: PixelSample = draw_pixels(trained.ids(stems), model.classes_.size, n_pixels, rng)
        bank = NormalisedBank(model.bank_, model.normalization_)
        [self.channels] = bank.sample_draws(images, [self.drawn], None, pass_on, "")
        self.kept = model.classifier_.standardise(self.channels.take(model.classifier_.channels_, axis=1))


def accuracy(X: NDArray[Any], Z: NDArray[Any], y: NDArray[Any], truth: NDArray[Any]) -> float:
    """Train a linear SVM on features X, scaled to a mean diagonal of 1, and score it on Z."""
    scale = np.sqrt(np.mean(np.sum(np.square(X, dtype=np.float64), axis=1)))
    svm = LinearSVM(C=1 / (len(X) * PENALTY)).fit(X / scale, y)
    return float(balanced_accuracy_score(truth, svm.predict(Z / scale)))


def _plane(features: NDArray[Any]) -> list[list[float]]:
    perplexity = min(30.0, (len(features) - 1) / 3)
    placed = TSNE(perplexity=perplexity, init="pca", random_state=SEED).fit_transform(features)
    return [[round(float(value), 2) for value in position] for position in placed]


def predict(trained: Trained, figure: str, n_images: int) -> Iterator[tuple[dict[str, Any], Picture]]:
    """Give rows of the result file, and pictures, of the first test images."""
    stems = trained.test[:n_images]
    for stem, image, truth in zip(stems, trained.images(stems), trained.ids(stems), strict=True):
        mask, probability = trained.model.predict(image, return_proba=True)
        found = trained.dataset.label_map.encode(mask)
        iou = float(np.nanmean(iou_of(confusion(truth, found, 2))))
        yield (
            trained.row(figure, stem) | {"mean_iou": round(iou, 4)},
            Picture(image, truth, found, probability),
        )


def parse() -> argparse.Namespace:
    """Parse the command line; only the quick form brings its own images."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with a folder for each set")
    parser.add_argument("--vgg19", type=Path, help="truncated VGG19 weights (Caffe preprocessing)")
    parser.add_argument("--squeezenet", type=Path, help="SqueezeNet 1.0 weights (Caffe preprocessing)")
    parser.add_argument("--figures", nargs="+", choices=FIGURES, default=FIGURES)
    parser.add_argument("--quick", action="store_true", help="made-up images, small models: does it run?")
    parser.add_argument("--out", type=Path, help="folder of figures.json and of the pictures")
    # What the methods of `segmentation` ask for.
    parser.set_defaults(max_steps=400, device="cpu", mobilenet=None)
    arguments = parser.parse_args()
    if arguments.data is None and not arguments.quick:
        parser.error("--data: needed, or --quick")
    return arguments


def main() -> None:
    arguments = parse()
    path = (arguments.out or (RESULTS / "quick" if arguments.quick else RESULTS)) / "figures.json"
    pictures = DOCS if arguments.out is None and not arguments.quick else path.parent
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        embedded, mapped, size = EMBEDDED, MAPPED, (N_SHOWN, N_KNOWN)
        if arguments.quick:
            arguments.data, size = Path(temporary), (40, 200)
            embedded, mapped = ("made-up",), dict.fromkeys(MAPPED, (("made-up",), 1))
            write_made_up(arguments.data / "made-up")
        has_weights = None not in (arguments.vgg19, arguments.squeezenet) and not arguments.quick
        methods = [name for name in METHODS if has_weights or name != "segkit-networks"]
        rows = json.loads(path.read_text())["rows"] if path.exists() and not arguments.quick else []
        rows = [row for row in rows if row["figure"] not in arguments.figures]
        models = Models(arguments)
        if "embedding" in arguments.figures:
            recipes = [method for method in methods if method != "forest"]
            found = [embed(models(name, recipe), *size) for name in embedded for recipe in recipes]
            draw_embeddings(found, pictures / EMBEDDING)
            rows += found
        for figure, (names, n_images) in mapped.items():
            if figure not in arguments.figures:
                continue
            pairs = [
                pair
                for name in names
                for method in methods
                for pair in predict(models(name, method), figure, n_images)
            ]
            draw_maps(pairs, pictures / MAPS[figure], with_image=figure == "nuclei")
            rows += [row for row, _ in pairs]
        write_rows(path, {}, rows)
    if "spread" in arguments.figures:
        results = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("segmentation-*.json"))]
        draw_spread(results, pictures / SPREAD)


if __name__ == "__main__":
    main()
