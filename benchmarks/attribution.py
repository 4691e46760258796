"""Which part of segkit earns what: features, classifier, centring and threshold, each with each.

    python -m benchmarks.attribution --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz --mobilenet MOBILENET.npz
        [--sets ...] [--train-sizes ...] [--seeds N] [--quick] [--out FILE]

Every classifier trains on as many pixels, and chooses channels and threshold on half as many. The penalty is the usual one
for so many images, without a choice; regions of any size are kept. Both thresholds are applied to the same decisions. Scores
are those of at most eight test images of a split, the first ones, on pixels of a regular grid:
`segkit.images.sampling.spread_pixels`. Where no feature has a value at every pixel, segkit's mixture has no Gaussian kernel
and equals the linear one: it is not trained again. Written to attribution.json, seed by seed; rows that the file holds
already are kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import digest_sources, result_path, split, write_rows
from benchmarks.effects import ADAPTIVE, CENTRINGS, CLASSIFIERS, FOREST, LINEAR, MIXTURE, THRESHOLDS
from benchmarks.segmentation import SETS, write_made_up
from segkit import ConvNetBank, ScatteringBank, Segmenter, StackedBank
from segkit.baselines import PixelForest
from segkit.benchmark.machine import machine
from segkit.evaluation.metrics import confusion, iou_of
from segkit.features import FilterBank, MultiscaleBank
from segkit.features.normalised import even_grid
from segkit.images import UNLABELLED, Dataset, load_pairs
from segkit.images.sampling import spread_pixels
from segkit.kernels import LinearGaussianMixture, LinearMixture
from segkit.segmentation.held_out import usual_penalty
from segkit.segmentation.segmenter import LAMBDAS
from segkit.segmentation.threshold import label_pixels

DEPTH = 14
TRAINING_PIXELS, QUICK_PIXELS = 6000, 500
N_TEST = 8
MOST_TEST_PIXELS = 2**14
VGG19_LAYERS = ("conv1_1", "conv1_2", "conv2_1", "conv2_2")
# The last maps of each width of cells, up to 16 pixels.
SQUEEZENET_LAYERS = (
    "conv1",
    *(f"fire{number}_{part}" for number in (4, 8, 9) for part in ("expand1x1", "expand3x3")),
)
MOBILENET_LAYERS = ("1_conv_0_2", *(f"{block}_conv_1_2" for block in (3, 6, 13)))


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained method, and the factors that it stands for."""

    n_train: int
    classifier: str
    centred: bool
    model: PixelForest | Segmenter
    seconds: float

    def decide(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """Decide on pixels by all of their channels; (n, 1), since two classes share one decision."""
        if isinstance(self.model, Segmenter):
            classifier = self.model.classifier_
            return classifier.decision_function(X.take(classifier.channels_, axis=1))
        probabilities = self.model.forest_.predict_proba(X)
        return np.asarray(probabilities[:, 1:] - probabilities[:, :1], dtype=np.float32)

    def label(self, decisions: NDArray[np.float32], threshold: str) -> NDArray[np.intp]:
        """Give the class ids of the pixels of one image."""
        ends = (self.model.threshold_, self.model.otsu_weight_) if threshold == ADAPTIVE else (0.0, 0.0)
        return label_pixels(decisions, *ends)


def make_banks(arguments: argparse.Namespace) -> dict[str, FilterBank]:
    """Make the bank of each set of features; a quick run has those without weights."""
    banks: dict[str, FilterBank] = {
        "filters": MultiscaleBank(),
        "scattering": ScatteringBank(J=3, L=4, angles="averaged"),
    }
    if not arguments.quick:
        caffe = {"preprocessing": "caffe"}
        banks |= {
            "vgg19": ConvNetBank("vgg19", weights=str(arguments.vgg19), layers=VGG19_LAYERS, **caffe),
            "squeezenet": ConvNetBank(
                "squeezenet1_0", weights=str(arguments.squeezenet), layers=SQUEEZENET_LAYERS, **caffe
            ),
            "mobilenet": ConvNetBank(
                "mobilenet_v2", weights=str(arguments.mobilenet), layers=MOBILENET_LAYERS
            ),
        }
    return banks | {"all": StackedBank(list(banks.values()))}


def make(
    bank: FilterBank, classifier: str, n_train: int, seed: int, n_pixels: int, *, centred: bool
) -> PixelForest | Segmenter:
    """Make a method that differs from the others in these parts only."""
    shared: dict[str, Any] = {
        "normalization": "image" if centred else "set",
        "threshold": "quantile+otsu",
        "training_pixels": n_pixels,
        "random_state": seed,
    }
    if classifier == FOREST:
        return PixelForest(bank, max_depth=DEPTH, threshold_pixels=n_pixels // 2, **shared)
    kernels = LinearMixture() if classifier == LINEAR else LinearGaussianMixture()
    penalties = [usual_penalty(LAMBDAS, n_train)]
    return Segmenter(bank, kernels=kernels, lambdas=penalties, selection_pixels=n_pixels // 2, **shared)


def train(
    dataset: Dataset, splits: Mapping[int, Sequence[str]], bank: FilterBank, seed: int, n_pixels: int
) -> list[Trained]:
    """Train every classifier on the training images of each size, with centring and without."""
    has_gaussians = bool((bank.strides(dataset.images[0].shape[2]) == 1).any())
    trained: list[Trained] = []
    for (n_train, stems), centred in itertools.product(splits.items(), CENTRINGS):
        places = [dataset.stems.index(stem) for stem in stems]
        images, masks = ([arrays[place] for place in places] for arrays in (dataset.images, dataset.masks))
        for classifier in CLASSIFIERS:
            if classifier == MIXTURE and not has_gaussians:
                [linear] = (one for one in trained[-1:] if one.classifier == LINEAR)
                trained.append(replace(linear, classifier=MIXTURE))
                continue
            start = time.perf_counter()
            model = make(bank, classifier, n_train, seed, n_pixels, centred=centred)
            model.fit(images, masks, label_map=dataset.label_map)
            trained.append(Trained(n_train, classifier, centred, model, time.perf_counter() - start))
    return trained


def score(
    dataset: Dataset, stem: str, bank: FilterBank, trained: Sequence[Trained], most: int = MOST_TEST_PIXELS
) -> Iterator[tuple[Trained, str, float]]:
    """Give the mean IoU of each method at each threshold on one image, at most so many pixels, whose features are shared."""
    place = dataset.stems.index(stem)
    image = dataset.images[place]
    pixels = spread_pixels([dataset.label_map.encode(dataset.masks[place])], most)
    pixels = pixels.subset(pixels.label != UNLABELLED)
    rows, cols = even_grid(image.shape)
    X = bank.sample(image, np.concatenate([pixels.row, rows]), np.concatenate([pixels.col, cols]))
    raw, means = X[: pixels.row.size], X[pixels.row.size :].mean(axis=0)
    for centred in CENTRINGS:
        features = raw - means if centred else raw
        for method in trained:
            if method.centred == centred:
                decisions = method.decide(features)
                for threshold in THRESHOLDS:
                    counts = confusion(pixels.label, method.label(decisions, threshold), 2)
                    yield method, threshold, float(np.nanmean(iou_of(counts)))


def measure(
    dataset: Dataset, folder: Path, sizes: Sequence[int], bank: FilterBank, seed: int, n_pixels: int
) -> list[dict[str, Any]]:
    """Measure one bank on one split of a set, with all other factors: a row for each combination."""
    splits = {n_train: split(folder, seed, n_train) for n_train in sizes}
    trained = train(dataset, {n_train: stems for n_train, (stems, _) in splits.items()}, bank, seed, n_pixels)
    # the test images do not depend on the number of training images
    _, test = splits[sizes[0]]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for stem in test[:N_TEST]:
        for method, threshold, iou in score(dataset, stem, bank, trained):
            factors = {name: getattr(method, name) for name in ("n_train", "classifier", "centred")}
            row = rows.setdefault(
                (*factors.values(), threshold),
                factors | {"threshold": threshold, "fit_seconds": round(method.seconds, 2), "images": {}},
            )
            row["images"][stem] = round(iou, 6)
    return list(rows.values())


def parse() -> argparse.Namespace:
    """Parse the command line; only the quick form needs no data and no weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    needed = {
        "data": "folder with a folder for each set",
        "vgg19": "weights of VGG19, whole or the first layers, Caffe's preprocessing",
        "squeezenet": "weights of SqueezeNet 1.0, Caffe's preprocessing",
        "mobilenet": "weights of MobileNetV2, torchvision's preprocessing",
    }
    for name, meaning in needed.items():
        parser.add_argument(f"--{name}", type=Path, help=meaning)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--train-sizes", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="made-up images, no networks: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    missing = [f"--{name}" for name in needed if getattr(arguments, name) is None]
    if missing and not arguments.quick:
        parser.error(f"{', '.join(missing)}: needed, or --quick")
    return arguments


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as temporary:
        if arguments.quick:
            arguments.data, arguments.sets = Path(temporary), ["made-up"]
            arguments.train_sizes, arguments.seeds = [2], 1
            write_made_up(arguments.data / "made-up")
        path = result_path(arguments, "attribution.json")
        rows = json.loads(path.read_text())["rows"] if path.exists() and not arguments.quick else []
        banks, n_pixels = make_banks(arguments), QUICK_PIXELS if arguments.quick else TRAINING_PIXELS
        for seed, name, features in itertools.product(range(arguments.seeds), arguments.sets, banks):
            known = {"set": name, "seed": seed, "features": features}
            if any(known.items() <= row.items() for row in rows):
                continue
            folder, start = arguments.data / name, time.perf_counter()
            dataset = load_pairs(folder / "images", folder / "masks")
            found = measure(dataset, folder, arguments.train_sizes, banks[features], seed, n_pixels)
            rows += [known | row | {"sources": digest_sources()} for row in found]
            header = {"images": "mean IoU of each test image", "n_test_at_most": N_TEST, "machine": machine()}
            write_rows(path, header, rows)
            print(f"{seed} {name} {features}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
