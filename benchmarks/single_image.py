"""What else a single image can teach: rules for thresholds, prototypes, and training anew on the images to be segmented.

    python -m benchmarks.single_image --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz
        [--sets ...] [--train-sizes ...] [--augmented 0 10] [--seeds N] [--quick]

The decisions of one fit of the first bank of two networks are treated in several ways, on a regular grid of pixels of each
test image, and with `n_augmented` copies of the training image:

- a share at least: the threshold falls until half the annotated share of the object is called object.
- clusters: the decision of a pixel is the mean of its own and that of its cluster (40 of an image, by k-means of 20
  principal components of the kept channels, and the place).
- prototypes: the difference of the mean of object pixels and that of background pixels as the decision (the witness
  function of the discrepancy under a linear kernel), with Otsu's threshold of each image.
- trained anew: the surest pixels of all test images join the training pixels with the label that they were given, with the
  same total weight. Labels of test images are not looked at.
- best threshold in hindsight: looks at the truth.

Written to single_image.json, row by row.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from benchmarks.common import difference_of, digest_sources, markdown_table, paired, split, write_result
from benchmarks.segmentation import NETWORKS, SETS, bank_option, parse, parser_of, write_made_up
from segkit import LinearSVM, Segmenter
from segkit.benchmark import load_methods
from segkit.evaluation.metrics import score_masks
from segkit.evaluation.statistics import compare, compare_pooled
from segkit.images import Dataset, load_pairs
from segkit.images.sampling import draw_pixels
from segkit.segmentation.threshold import best_threshold, image_threshold

Floats = NDArray[np.float32]
# Mean IoU of each way to decide, by seed and image.
ScoresOfWays = dict[tuple[int, str], dict[str, float]]

STEP = 4
AS_IT_IS, HINDSIGHT = "as it is", "best threshold of each image in hindsight"
SHARE, CLUSTERS = "a share of the object at least", "clusters of pixels"
PROTOTYPES, ANEW = "prototypes of both classes", "trained anew on the images to be segmented"
WAYS = (SHARE, CLUSTERS, PROTOTYPES, ANEW, HINDSIGHT)
# Of an image: the share of the pixels called object (twice that many at most) and of the lowest decisions that are sure.
SURE_OBJECT, SURE_BACKGROUND, FEWEST_SURE = 0.6, 0.5, 15
MOST_OF_AN_IMAGE, MOST_OF_TRAINING = 150, 4000
N_CLUSTERS, N_COMPONENTS = 40, 20


def grid_of(shape: tuple[int, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of a regular grid."""
    rows, cols = np.meshgrid(*(np.arange(STEP // 2, side, STEP) for side in shape[:2]), indexing="ij")
    return rows.ravel(), cols.ravel()


def decide(segmenter: Segmenter, features: Floats) -> Floats:
    """Decisions of standardised kept channels."""
    classifier = segmenter.classifier_
    found = classifier.kernels_.dot(features, classifier.svm_.coef_) + classifier.svm_.intercept_
    return np.asarray(found[:, 0], dtype=np.float32)


def lowered(decisions: Floats, threshold: float, share: float) -> float:
    """Threshold of which at least this share of the pixels lies above."""
    return min(threshold, float(np.quantile(decisions, 1 - share)))


def by_cluster(decisions: Floats, features: Floats, places: Floats) -> Floats:
    """Mean of each decision and of those of its cluster."""
    components = PCA(min(N_COMPONENTS, *features.shape), random_state=0).fit_transform(features)
    X = np.hstack(
        [components / components[:, 0].std(), 0.3 * (places - places.mean(axis=0)) / places.std(axis=0)]
    )
    cluster = KMeans(min(N_CLUSTERS, len(X)), n_init=1, random_state=0).fit_predict(X)
    means = np.bincount(cluster, decisions) / np.maximum(np.bincount(cluster), 1)
    return np.asarray((decisions + means[cluster]) / 2, dtype=np.float32)


def surest(decisions: Floats, threshold: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pixels of an image that are surest to be object, and background."""
    order = np.argsort(decisions)
    n_object = max(round(2 * SURE_OBJECT * np.count_nonzero(decisions > threshold)), FEWEST_SURE)
    return order[-n_object:], order[: round(SURE_BACKGROUND * order.size)]


def train_anew(
    segmenter: Segmenter,
    X: Floats,
    y: NDArray[np.intp],
    weight: NDArray[np.float64],
    features: list[Floats],
    decisions: list[Floats],
) -> list[Floats]:
    """Decisions of a classifier that the surest pixels of the images have taught too, each image with the same weight."""
    rng = np.random.default_rng(0)
    rows, labels, weights = [X], [y], [weight / weight.sum()]
    for of_image, found in zip(features, decisions, strict=True):
        parts = surest(found, threshold_of(segmenter, found))
        n_sure = sum(map(len, parts))
        for label, part in enumerate(reversed(parts)):
            drawn = rng.choice(part, min(len(part), MOST_OF_AN_IMAGE), replace=False)
            rows.append(of_image[drawn])
            labels.append(np.full(len(drawn), label))
            weights.append(np.full(len(drawn), len(part) / (n_sure * len(drawn) * len(features))))
    kernels = segmenter.classifier_.kernels_
    Z = kernels.transform(np.concatenate(rows))
    together = np.concatenate(weights)
    svm = LinearSVM(C=1 / (len(Z) * segmenter.lambda_))
    svm.fit(Z, np.concatenate(labels), together / together.mean())
    return [
        np.asarray((kernels.dot(of_image, svm.coef_) + svm.intercept_)[:, 0], dtype=np.float32)
        for of_image in features
    ]


def threshold_of(segmenter: Segmenter, decisions: Floats) -> float:
    """Give the threshold of an image that the segmenter takes."""
    return image_threshold(decisions, segmenter.threshold_, segmenter.otsu_weight_)


def measure(dataset: Dataset, segmenter: Segmenter, train: list[str], test: list[str]) -> dict[str, Any]:
    """Train once, and score every treatment on each test image."""
    images = dict(zip(dataset.stems, dataset.images, strict=True))
    masks = {
        stem: dataset.label_map.encode(mask) for stem, mask in zip(dataset.stems, dataset.masks, strict=True)
    }
    segmenter.fit(
        [images[stem] for stem in train],
        [dataset.label_map.decode(masks[stem]) for stem in train],
        label_map=dataset.label_map,
    )
    ids = [masks[stem] for stem in train]
    drawn = draw_pixels(ids, 2, MOST_OF_TRAINING, np.random.default_rng(0))
    X = np.concatenate(
        [
            segmenter.pixel_features(images[stem], drawn.row[part], drawn.col[part])
            for index, stem in enumerate(train)
            for part in [drawn.of_image(index)]
        ]
    )
    y = drawn.label.astype(np.intp)  # the drawn pixels are in the order of the images
    grids = {stem: grid_of(images[stem].shape) for stem in test}
    features = [segmenter.pixel_features(images[stem], *grids[stem]) for stem in test]
    decisions = [decide(segmenter, of_image) for of_image in features]
    anew = train_anew(segmenter, X, y, drawn.weight, features, decisions)
    witness = X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0)
    share = float(np.mean(np.concatenate([mask.ravel() for mask in ids]) == 1)) / 2
    found = {}
    for stem, of_image, own, again in zip(test, features, decisions, anew, strict=True):
        truth = masks[stem][grids[stem]]
        smooth = by_cluster(own, of_image, np.stack(grids[stem], axis=1).astype(np.float32))
        prototype = (of_image @ witness).astype(np.float32)
        prototype /= np.abs(prototype).max()
        hindsight = best_threshold(own, truth, np.ones(own.size), np.zeros(own.size, dtype=np.intp))
        treated = {
            AS_IT_IS: (own, threshold_of(segmenter, own)),
            SHARE: (own, lowered(own, threshold_of(segmenter, own), share)),
            CLUSTERS: (smooth, threshold_of(segmenter, smooth)),
            PROTOTYPES: (prototype, image_threshold(prototype, 0.0, 1.0)),
            ANEW: (again, threshold_of(segmenter, again)),
            HINDSIGHT: (own, hindsight),
        }
        found[stem] = {
            way: score_masks([truth[None]], [(values > threshold).astype(np.intp)[None]], 2).mean
            for way, (values, threshold) in treated.items()
        }
    return found


def scores_by_set(
    rows: list[dict[str, Any]], names: tuple[str, ...]
) -> dict[tuple[Any, ...], dict[str, ScoresOfWays]]:
    """Group the scores of rows by some of their settings, in order, and by set."""
    groups: dict[tuple[Any, ...], dict[str, ScoresOfWays]] = {}
    for row in rows:
        of_set = groups.setdefault(tuple(row[name] for name in names), {}).setdefault(row["set"], {})
        of_set.update({(row["seed"], image): scores for image, scores in row["mean_iou"].items()})
    return dict(sorted(groups.items()))


def pair_of(scores: ScoresOfWays, way: str) -> Any:
    """Pair the scores of a way with those of the decisions as they are."""
    return paired(*({key: one[which] for key, one in scores.items()} for which in (way, AS_IT_IS)))


def single_image(result: dict[str, Any]) -> str:
    """Make the table: mean IoU as it is, and what each treatment adds."""
    rows = []
    for (n_train, n_augmented), sets in scores_by_set(result["rows"], ("n_train", "n_augmented")).items():
        for name, scores in sets.items():
            gains = [compare(*pair_of(scores, way)).difference for way in WAYS]
            mean = np.mean([one[AS_IT_IS] for one in scores.values()])
            n_seeds = len({seed for seed, _ in scores})
            told = [f"{gain:+.3f}" for gain in gains]
            rows.append((n_train, n_augmented, name, f"{mean:.3f}", *told, n_seeds))
        pooled = [compare_pooled([pair_of(scores, way) for scores in sets.values()]) for way in WAYS]
        rows.append((n_train, n_augmented, "all, with equal weight", "", *map(difference_of, pooled), ""))
    return markdown_table(["training images", "copies", "set", AS_IT_IS, *WAYS, "splits"], rows)


def main() -> None:
    parser = parser_of(__doc__, methods=(), train_sizes=[1])
    parser.add_argument("--augmented", type=int, nargs="+", default=[0, 10])
    parser.set_defaults(sets=SETS)
    arguments = parse(parser)
    path = arguments.out / "single_image.json"
    result: dict[str, Any] = {"rows": []}
    with tempfile.TemporaryDirectory() as temporary:
        option = "bank={name: multiscale}" if arguments.quick else bank_option(arguments, NETWORKS)
        small = ["selection.pixels=400", "training.pixels=1000"] if arguments.quick else []
        if arguments.quick:
            arguments.data, arguments.sets, arguments.seeds = Path(temporary), ["made-up"], 1
            arguments.augmented = [2]
            write_made_up(arguments.data / "made-up")
        elif path.exists():
            result = json.loads(path.read_text())
        done = {(row["set"], row["n_train"], row["n_augmented"], row["seed"]) for row in result["rows"]}
        jobs = [
            (name, n_train, n_augmented, seed)
            for seed in range(arguments.seeds)
            for name in arguments.sets
            for n_train in arguments.train_sizes
            for n_augmented in arguments.augmented
        ]
        for job in jobs:
            if job in done:
                continue
            name, n_train, n_augmented, seed = job
            settings = [option, f"training.n_augmented={n_augmented}", *small]
            [method] = load_methods(
                ["segkit-no-networks"], None, [f"segkit-no-networks.{one}" for one in settings]
            )
            folder = arguments.data / name
            dataset = load_pairs(folder / "images", folder / "masks")
            found = measure(dataset, method.build(seed), *split(folder, seed, n_train))
            result["rows"].append(
                {
                    "set": name,
                    "n_train": n_train,
                    "n_augmented": n_augmented,
                    "seed": seed,
                    "sources": digest_sources(),
                    "mean_iou": found,
                }
            )
            write_result(path, result)
            means = [
                f"{way} {np.mean([one[way] for one in found.values()]):.3f}" for way in (AS_IT_IS, *WAYS)
            ]
            print(f"{name} {n_train} {n_augmented} {seed}: {', '.join(means)}", flush=True)


if __name__ == "__main__":
    main()
