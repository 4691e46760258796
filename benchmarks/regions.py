"""A second stage on regions, which knows the whole object that a pixel lies in.

    python -m benchmarks.regions --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz
        [--sets ...] [--train-sizes 1 2 3] [--seeds N] [--quick]

The first stage is one fit of the first bank of two networks. Its decisions on the training images come from two further
fits, each on one half of the annotated pixels: halves of the images, or of the blocks of a single image. Where a half lacks
a class, they are those of the first fit. Each image is cut into superpixels (SLIC, on the first components of the kept
channels and on the place). Of a superpixel the second stage, a logistic regression, knows

- the mean and the spread of the decisions, and their contrast with the ring around it,
- the size and the mean decision of the connected object in which it lies, and its own share of that object,
- its place, and the mean of each component.

Scored on a regular grid of pixels of each test image: the decision as it is, that of the region, and the mean of the two
log odds. The constants were fixed before a score of this form was seen. An earlier form, whose results were not kept, had
been tried on the same sets: it gained a little on polyps with two images, and lost on nuclei and membranes.

Written to regions.json, row by row.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.segmentation import slic
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.common import difference_of, digest_sources, markdown_table, split, write_result
from benchmarks.segmentation import NETWORKS, bank_option, parse, parser_of, write_made_up
from benchmarks.single_image import AS_IT_IS, decide, grid_of, pair_of, scores_by_set, threshold_of
from segkit import Segmenter
from segkit.benchmark import load_methods
from segkit.evaluation.metrics import score_masks
from segkit.evaluation.statistics import compare
from segkit.images import UNLABELLED, Dataset, load_pairs
from segkit.images.sampling import BLOCKS, block_folds

Floats = NDArray[np.float32]

SETS = ("kvasir_seg_256", "dsb2018_stained", "isbi2012_em")
REGIONS, BOTH = "regions alone", "mean of both"
WAYS = (REGIONS, BOTH)
N_REGIONS, N_COMPONENTS, COMPACTNESS, RING = 150, 8, 0.1, 3


class Seen(NamedTuple):
    """An image on its grid: decisions less their threshold, components, and class of each pixel."""

    decisions: Floats
    components: Floats
    truth: NDArray[np.uint8]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of the grid."""
        return self.truth.shape


def known(mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Pixels that are annotated."""
    return np.asarray(mask != UNLABELLED)


def regions_of(seen: Seen) -> NDArray[np.intp]:
    """Superpixels of an image, numbered from 0."""
    scaled = seen.components / seen.components[..., 0].std()
    labels = slic(
        scaled.astype(np.float64),
        n_segments=N_REGIONS,
        compactness=COMPACTNESS,
        channel_axis=2,
        convert2lab=False,
        start_label=0,
    )
    return np.unique(labels, return_inverse=True)[1].reshape(seen.shape)


def describe(seen: Seen, regions: NDArray[np.intp]) -> Floats:
    """Describe each region by its decisions, its object, its place and its components."""
    index = np.arange(regions.max() + 1)
    size = np.bincount(regions.ravel())

    def mean(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(regions.ravel(), np.ravel(values)) / size

    around = np.empty(len(index))
    for region, window in enumerate(ndimage.find_objects(regions + 1)):
        wide = tuple(slice(max(0, side.start - RING), side.stop + RING) for side in window)
        inside = regions[wide] == region
        ring = ndimage.binary_dilation(inside, iterations=RING) & ~inside
        around[region] = seen.decisions[wide][ring].mean() if ring.any() else seen.decisions.mean()
    objects = ndimage.label(seen.decisions > 0)[0]
    n_pixels = np.bincount(objects.ravel())
    strength = np.bincount(objects.ravel(), seen.decisions.ravel()) / np.maximum(n_pixels, 1)
    inside = objects > 0
    own = mean(seen.decisions)
    rows, cols = np.indices(seen.shape)
    columns = [
        own,
        np.sqrt(np.maximum(mean(seen.decisions**2) - own**2, 0)),
        own - around,
        mean(np.where(inside, np.log1p(n_pixels[objects]), 0)),
        mean(np.where(inside, strength[objects], 0)),
        mean(inside),
        mean(rows) / seen.shape[0],
        mean(cols) / seen.shape[1],
        *(mean(seen.components[..., component]) for component in range(seen.components.shape[2])),
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def learn(images: list[Seen]) -> tuple[Pipeline, LogisticRegression]:
    """Fit the second stage, and the scale of the decisions themselves, on annotated pixels."""
    rows, labels, weights, decisions, truths = [], [], [], [], []
    for seen in images:
        regions = regions_of(seen)
        annotated, described = known(seen.truth), describe(seen, regions)
        for label in (0, 1):
            n_pixels = np.bincount(regions[annotated & (seen.truth == label)], minlength=regions.max() + 1)
            rows.append(described[n_pixels > 0])
            labels.append(np.full(np.count_nonzero(n_pixels), label))
            weights.append(n_pixels[n_pixels > 0] / np.count_nonzero(annotated))
        decisions.append(seen.decisions[annotated])
        truths.append(seen.truth[annotated])
    stage = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=1000))
    # the penalty is that of as many samples as there are regions
    weight = np.concatenate(weights)
    weight *= N_REGIONS * len(images) / weight.sum()
    stage.fit(np.concatenate(rows), np.concatenate(labels), logisticregression__sample_weight=weight)
    scale = LogisticRegression(C=np.inf, fit_intercept=False)
    scale.fit(np.concatenate(decisions)[:, None], np.concatenate(truths))
    return stage, scale


def halves(ids: list[NDArray[np.uint8]]) -> list[list[NDArray[np.bool_]]]:
    """Two halves of the annotated pixels, as a mask for each image: of several images, or of the blocks of one."""
    if len(ids) == 1:
        grid = np.indices(ids[0].shape)
        fold = block_folds(grid[0], grid[1], ids[0].shape)
        return [[fold < BLOCKS // 2], [fold >= BLOCKS // 2]]
    return [[np.full(mask.shape, index % 2 == half) for index, mask in enumerate(ids)] for half in (0, 1)]


def decide_grid(segmenter: Segmenter, image: Floats) -> tuple[Floats, Floats]:
    """Decisions on the grid of an image, less their threshold, and features of its pixels."""
    row, col = grid_of(image.shape)
    features = segmenter.pixel_features(image, row, col)
    found = decide(segmenter, features)
    return (found - threshold_of(segmenter, found)).reshape(len(np.unique(row)), -1), features


def see(decisions: Floats, features: Floats, mask: NDArray[np.uint8], pca: PCA) -> Seen:
    """Put together what is known of an image on its grid."""
    components = pca.transform(features).astype(np.float32)
    return Seen(
        decisions,
        components.reshape(*decisions.shape, -1),
        mask[grid_of(mask.shape)].reshape(decisions.shape),
    )


def measure(dataset: Dataset, segmenter: Segmenter, train: list[str], test: list[str]) -> dict[str, Any]:
    """Train both stages, and score them on each test image."""
    images = dict(zip(dataset.stems, dataset.images, strict=True))
    masks = {
        stem: dataset.label_map.encode(mask) for stem, mask in zip(dataset.stems, dataset.masks, strict=True)
    }

    def fit(ids: list[NDArray[np.uint8]]) -> Segmenter:
        annotated = [(images[stem], mask) for stem, mask in zip(train, ids, strict=True) if known(mask).any()]
        # class ids are as good as the values of the masks
        return clone(segmenter).fit(*map(list, zip(*annotated, strict=True)))

    ids = [masks[stem] for stem in train]
    whole = fit(ids)
    features = [decide_grid(whole, images[stem])[1] for stem in train]
    together = np.concatenate(features)
    pca = PCA(min(N_COMPONENTS, *together.shape), random_state=0).fit(together)
    held_out = []
    for half in halves(ids):
        rest = [np.where(out, np.uint8(UNLABELLED), mask) for out, mask in zip(half, ids, strict=True)]
        both = {0, 1} <= {int(value) for mask in rest for value in np.unique(mask)}
        part = fit(rest) if both else whole
        for stem, out, mask, own in zip(train, half, ids, features, strict=True):
            if out.any():
                decided, _ = decide_grid(part, images[stem])
                held_out.append(see(decided, own, np.where(out, mask, np.uint8(UNLABELLED)), pca))
    stage, scale = learn(held_out)
    found = {}
    for stem in test:
        seen = see(*decide_grid(whole, images[stem]), masks[stem], pca)
        regions = regions_of(seen)
        of_region = stage.decision_function(describe(seen, regions))[regions]
        own = scale.coef_[0, 0] * seen.decisions
        found[stem] = {
            way: score_masks([seen.truth], [(values > 0).astype(np.intp)], 2).mean
            for way, values in {AS_IT_IS: own, REGIONS: of_region, BOTH: (own + of_region) / 2}.items()
        }
    return found


def regions(result: dict[str, Any]) -> str:
    """Make the table: mean IoU as it is, and what the second stage adds."""
    rows = []
    for (n_train,), sets in scores_by_set(result["rows"], ("n_train",)).items():
        for name, scores in sets.items():
            mean = np.mean([one[AS_IT_IS] for one in scores.values()])
            gains = [difference_of(compare(*pair_of(scores, way))) for way in WAYS]
            rows.append((n_train, name, f"{mean:.3f}", *gains, len({seed for seed, _ in scores})))
    return markdown_table(["training images", "set", AS_IT_IS, *WAYS, "splits"], rows)


def main() -> None:
    parser = parser_of(__doc__, methods=(), train_sizes=[1, 2, 3])
    parser.set_defaults(sets=SETS, seeds=3)
    arguments = parse(parser)
    path = arguments.out / "regions.json"
    result: dict[str, Any] = {"rows": []}
    with tempfile.TemporaryDirectory() as temporary:
        options = [bank_option(arguments, NETWORKS)]
        if arguments.quick:
            arguments.data, arguments.sets, arguments.seeds = Path(temporary), ["made-up"], 1
            arguments.train_sizes = [1, 2]
            options = ["bank={name: multiscale}", "selection.pixels=400", "training.pixels=1000"]
            write_made_up(arguments.data / "made-up")
        elif path.exists():
            result = json.loads(path.read_text())
        done = {(row["set"], row["n_train"], row["seed"]) for row in result["rows"]}
        jobs = itertools.product(range(arguments.seeds), arguments.train_sizes, arguments.sets)
        for seed, n_train, name in jobs:
            if (name, n_train, seed) in done:
                continue
            [method] = load_methods(
                ["segkit-no-networks"], None, [f"segkit-no-networks.{one}" for one in options]
            )
            folder = arguments.data / name
            dataset = load_pairs(folder / "images", folder / "masks")
            found = measure(dataset, method.build(seed), *split(folder, seed, n_train))
            row = {"set": name, "n_train": n_train, "seed": seed, "sources": digest_sources()}
            result["rows"].append(row | {"mean_iou": found})
            write_result(path, result)
            means = [
                f"{way} {np.mean([one[way] for one in found.values()]):.3f}" for way in (AS_IT_IS, *WAYS)
            ]
            print(f"{name} {n_train} {seed}: {', '.join(means)}", flush=True)


if __name__ == "__main__":
    main()
