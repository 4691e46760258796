"""Which part of segkit earns what: features, classifier, centring and threshold, each with each.

    python -m benchmarks attribution --data DATA --weights WEIGHTS [--sets ...] [--seeds N]

Every classifier trains on as many pixels, and chooses channels and threshold on half as many. The penalty is the usual one
for so many images, without a choice; regions of any size are kept. Both thresholds are applied to the same decisions. Scores
are those of at most eight test images of a split, the first ones, on pixels of a regular grid:
`segkit.images.sampling.spread_pixels`. Where no feature has a value at every pixel, segkit's mixture has no Gaussian kernel
and equals the linear one: it is not trained again.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.markdown import difference_of, markdown_table
from benchmarks.rows import Row, Study, flat, read_file
from benchmarks.segmentation import DEVELOPMENT, split, write_made_up
from segkit import ScatteringBank, Segmenter, StackedBank
from segkit.baselines import PixelForest
from segkit.evaluation.metrics import confusion, iou_of
from segkit.evaluation.statistics import Comparison, compare_pooled
from segkit.features import ConvNetBank, FilterBank, MultiscaleBank
from segkit.features.normalised import even_grid
from segkit.images import UNLABELLED, Dataset, load_pairs
from segkit.images.sampling import spread_pixels
from segkit.kernels import LinearGaussianMixture, LinearMixture
from segkit.segmentation.held_out import usual_penalty
from segkit.segmentation.segmenter import ALPHAS
from segkit.segmentation.threshold import label_pixels

FOREST, LINEAR, MIXTURE = CLASSIFIERS = ("forest", "linear", "mixture")
ZERO, ADAPTIVE = THRESHOLDS = ("zero", "adaptive")
CENTRINGS = (False, True)
FILTERS = "filters"
FEATURES = {
    FILTERS: "the forest's filters",
    "scattering": "scattering",
    "vgg19": "VGG19 to conv2_2",
    "squeezenet": "SqueezeNet",
    "mobilenet": "MobileNetV2",
    "all": "all of these",
}
# Features with a value at every pixel, which segkit's mixture has Gaussian kernels of; on others it is the linear one.
FINE = tuple(name for name in FEATURES if name not in ("squeezenet", "mobilenet"))
FACTORS: dict[str, tuple[Any, ...]] = {
    "features": tuple(FEATURES),
    "classifier": CLASSIFIERS,
    "centred": CENTRINGS,
    "threshold": THRESHOLDS,
}


class Effect(NamedTuple):
    """A level of a factor, compared with another one, with all other factors equal."""

    title: str
    factor: str
    level: Any
    base: Any
    features: tuple[str, ...] = tuple(FEATURES)


EFFECTS = (
    Effect("centring of each image, less none", "centred", level=True, base=False),
    Effect("adaptive threshold, less zero", "threshold", ADAPTIVE, ZERO),
    Effect("linear SVM, less the forest", "classifier", LINEAR, FOREST),
    Effect("mixture, less the linear SVM", "classifier", MIXTURE, LINEAR, FINE),
    *(
        Effect(f"{title}, less the forest's filters", "features", name, FILTERS)
        for name, title in FEATURES.items()
        if name != FILTERS
    ),
)


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
        """Return the class ids of the pixels of one image."""
        ends = (
            (self.model.rule_.threshold, self.model.rule_.otsu_weight)
            if threshold == ADAPTIVE
            else (0.0, 0.0)
        )
        return label_pixels(decisions, *ends)


def make_banks(study: Study) -> dict[str, FilterBank]:
    """Make the bank of each set of features; a quick run has those without weights."""
    banks: dict[str, FilterBank] = {
        "filters": MultiscaleBank(),
        "scattering": ScatteringBank(J=3, L=4, angles="averaged"),
    }
    if not study.quick:
        for name, network, layers, options in (
            ("vgg19", "vgg19", VGG19_LAYERS, {"preprocessing": "caffe"}),
            ("squeezenet", "squeezenet1_0", SQUEEZENET_LAYERS, {"preprocessing": "caffe"}),
            ("mobilenet", "mobilenet_v2", MOBILENET_LAYERS, {}),
        ):
            banks[name] = ConvNetBank(network, weights=study.weight(network), layers=layers, **options)
    return banks | {"all": StackedBank(list(banks.values()))}


def make(
    bank: FilterBank, classifier: str, n_train: int, seed: int, n_pixels: int, *, centred: bool
) -> PixelForest | Segmenter:
    """Make a method that differs from the others in these parts only."""
    normalization: Any = "image" if centred else "set"
    shared: dict[str, Any] = {
        "threshold": "quantile+otsu",
        "training_pixels": n_pixels,
        "random_state": seed,
    }
    if classifier == FOREST:
        return PixelForest(
            bank, max_depth=DEPTH, normalization=normalization, threshold_pixels=n_pixels // 2, **shared
        )
    kernels = LinearMixture() if classifier == LINEAR else LinearGaussianMixture()
    penalties = [usual_penalty(ALPHAS, n_train)]
    bank = StackedBank([bank], normalization=normalization)
    return Segmenter(bank, kernels=kernels, alphas=penalties, selection_pixels=n_pixels // 2, **shared)


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
    """Yield the mean IoU of each method at each threshold on one image, on at most so many pixels."""
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


def run(study: Study) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        names, n_seeds, sizes, n_pixels = study.sets or DEVELOPMENT, study.seeds or 5, (1, 5), TRAINING_PIXELS
        if study.quick:
            study.data, names, n_seeds, sizes, n_pixels = Path(temporary), ["made-up"], 1, (2,), QUICK_PIXELS
            write_made_up(study.data / "made-up")
        banks, known = make_banks(study), read_file(study.out / "attribution.jsonl")
        for seed, name, features in itertools.product(range(n_seeds), names, banks):
            start = {"set": name, "seed": seed, "features": features}
            if any(start.items() <= row["where"].items() for row in known):
                continue
            folder = study.folder(name)
            dataset = load_pairs(folder / "images", folder / "masks")
            for row in measure(dataset, folder, sizes, banks[features], seed, n_pixels):
                where = start | {
                    key: row.pop(key) for key in ("n_train", "classifier", "centred", "threshold")
                }
                study.row(where, lambda row=row: row)


class Scores(NamedTuple):
    """Mean IoU of one set: of each test image of each seed, by factor in the order of `FACTORS`."""

    values: NDArray[np.float64]  # (n, n_features, n_classifiers, n_centrings, n_thresholds)
    images: list[str]
    seeds: list[int]


def whole_seeds(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """List the seeds of each set that have all combinations; sets without any are left out."""
    found = {tuple(row[name] for name in ("set", "seed", "n_train", *FACTORS)) for row in rows}
    sets, seeds, sizes = ({key[place] for key in found} for place in range(3))
    wanted = set(itertools.product(sizes, *FACTORS.values()))
    whole = {
        name: [seed for seed in sorted(seeds) if all((name, seed, *cell) in found for cell in wanted)]
        for name in sorted(sets)
    }
    return {name: own for name, own in whole.items() if own}


def scores_of(rows: Sequence[Mapping[str, Any]], n_train: int) -> dict[str, Scores]:
    """Arrange the scores of the whole seeds by set."""
    found = {
        tuple(row[name] for name in ("set", "seed", *FACTORS)): row["images"]
        for row in rows
        if row["n_train"] == n_train
    }
    shape = [len(levels) for levels in FACTORS.values()]
    scores = {}
    for name, seeds in whole_seeds(rows).items():
        values, images, of_seed = [], [], []
        for seed in seeds:
            cells = [found[name, seed, *levels] for levels in itertools.product(*FACTORS.values())]
            images += list(cells[0])
            of_seed += [seed] * len(cells[0])
            values += [[cell[image] for cell in cells] for image in cells[0]]
        scores[name] = Scores(np.reshape(values, (-1, *shape)), images, of_seed)
    return scores


def effect_of(scores: Mapping[str, Scores], effect: Effect) -> Comparison:
    """Compare two levels of a factor: means over all other factors, sets with equal weight, images and seeds resampled."""
    pairs = []
    for values, images, seeds in scores.values():
        if effect.factor != "features":
            values = values[:, [list(FEATURES).index(name) for name in effect.features]]
        axis = 1 + list(FACTORS).index(effect.factor)
        levels = (FACTORS[effect.factor].index(level) for level in (effect.level, effect.base))
        first, second = (
            values.take(level, axis=axis).reshape(len(values), -1).mean(axis=1) for level in levels
        )
        pairs.append((first, second, images, seeds))
    return compare_pooled(pairs)


def attribution(found: Sequence[Row]) -> str:
    """Tabulate the main effects; sets have equal weight."""
    rows = flat(found)
    by_size = {n_train: scores_of(rows, n_train) for n_train in sorted({row["n_train"] for row in rows})}
    sizes = [f"{n} training image{'s' if n > 1 else ''}" for n in by_size]
    effects = []
    for effect in EFFECTS:
        found = [effect_of(scores, effect) for scores in by_size.values()]
        effects.append([effect.title, *(difference_of(one, doubt=True, splits=False) for one in found)])
    splits = ", ".join(f"{name} {len(seeds)}" for name, seeds in whole_seeds(rows).items())
    table = markdown_table(["main effect on mean IoU", *sizes], effects)
    return f"{table}\nSets have equal weight. Splits: {splits}."


TABLES = {"attribution": attribution}
