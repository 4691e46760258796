"""What smoothing of decision maps, another threshold for each image, or a second stage would add without weights.

    python -m benchmarks.postprocessing --data DATA [--sets ...] [--train-sizes ...] [--seeds N] [--quick]

The decisions of one fit, of the recipe without networks and without elongated filters, are treated in several ways,
on the splits of `benchmarks.segmentation`. Smoothing takes neighbours for alike; the prior of an image is found by
expectation maximisation on its calibrated probabilities (M. Saerens, P. Latinne, C. Decaestecker, Neural Computation
14, 2002); the expected IoU takes these probabilities at their word; the best threshold in hindsight, which looks at
the truth, says how much any rule for thresholds could add. Auto-context (Z. Tu, X. Bai, IEEE Trans. Pattern Analysis
and Machine Intelligence 32, 2010) learns a second stage from the decisions alone, those on each training image by
classifiers of the others. Written to postprocessing.json.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, median_filter
from scipy.special import logit
from skimage.restoration import denoise_tv_chambolle
from sklearn.base import clone

from benchmarks.ablations import SCATTERING_OPTIONS, with_scattering
from benchmarks.common import result_path, split, write_result
from benchmarks.segmentation import QUICK, SETS, write_made_up
from segkit import LinearSVM, Segmenter
from segkit.benchmark import load_methods
from segkit.evaluation.metrics import score_masks
from segkit.features import MultiscaleBank
from segkit.images import Dataset, LabelMap, load_pairs
from segkit.segmentation.regions import merge_small_regions
from segkit.segmentation.threshold import best_threshold, image_threshold

Decisions = NDArray[np.float32]
FILTERS: dict[str, Callable[[Decisions], Decisions]] = {
    "as it is": np.asarray,
    **{
        f"Gaussian, sigma {sigma:g} pixels": partial(gaussian_filter, sigma=sigma) for sigma in (0.5, 1, 2, 4)
    },
    **{f"median of {size} x {size} pixels": partial(median_filter, size=size) for size in (3, 5)},
    **{
        f"total variation, weight {weight:g}": partial(denoise_tv_chambolle, weight=weight)
        for weight in (0.1, 0.5)
    },
}
PRIOR = "prior of each image by expectation maximisation"
EXPECTED = "threshold of the highest expected IoU of each image"
CONTEXT = "auto-context: multiscale filters of the decisions, a second stage"
HINDSIGHT = "best threshold of each image in hindsight"


def prior_shift(probabilities: NDArray[np.float64], trained: float, n_steps: int = 100) -> float:
    """Log-odds by which the prior of an image exceeds that of the training images."""
    prior = trained
    for _ in range(n_steps):
        positive = probabilities * prior / trained
        negative = (1 - probabilities) * (1 - prior) / (1 - trained)
        prior = float(np.clip((positive / (positive + negative)).mean(), 1e-4, 1 - 1e-4))
    return float(logit(prior) - logit(trained))


def expected_iou_threshold(decisions: Decisions, probabilities: NDArray[np.float64]) -> float:
    """Decision above which pixels are the object if the ratio of expected counts is to be highest, mean of both classes."""
    order = np.argsort(-decisions.ravel())
    inside = np.cumsum(probabilities[order])
    n_pixels, n_inside = inside.size, np.arange(1, inside.size + 1)
    outside = (n_pixels - inside[-1]) - (n_inside - inside)  # background left outside
    iou = inside / (n_inside + inside[-1] - inside) + outside / (n_pixels - inside)
    best = int(np.argmax(iou[:-1]))
    return float(decisions.ravel()[order[best : best + 2]].mean())


class SecondStage:
    """Auto-context: a segmenter of decisions, taught by those of classifiers that had not seen the image."""

    def __init__(
        self, first: Segmenter, images: list[NDArray[Any]], masks: list[NDArray[Any]], label_map: LabelMap
    ) -> None:
        C = 1 / (first.training_pixels * first.lambda_)
        blind = clone(first).set_params(svm=LinearSVM(C=C), lambdas=None, threshold="zero", probability="raw")
        decisions = []
        for place, image in enumerate(images):
            others = [index for index in range(len(images)) if index != place]
            blind.fit(
                [images[index] for index in others], [masks[index] for index in others], label_map=label_map
            )
            decisions.append(blind.decision_function(image))
        self.scale = float(np.mean([np.abs(found).mean() for found in decisions]))
        self.segmenter = Segmenter(MultiscaleBank(sigma_min=0.5), normalization="set")
        self.segmenter.fit([self._picture(found) for found in decisions], masks, label_map=label_map)

    def predict(self, decisions: Decisions) -> NDArray[Any]:
        """Class ids that the decisions of the first stage on an image lead to."""
        label_map: LabelMap = self.segmenter.label_map_
        return label_map.encode(self.segmenter.predict(self._picture(decisions)))

    def _picture(self, decisions: Decisions) -> Decisions:
        return np.clip(decisions / self.scale, -2, 2) / 4 + 0.5


def treat(
    segmenter: Segmenter, second: SecondStage, image: NDArray[Any], truth: NDArray[Any], trained: float
) -> dict[str, float]:
    """Mean IoU of an image, its decisions treated in each way."""
    decisions = segmenter.decision_function(image)

    def score(decisions: Decisions, threshold: float) -> float:
        ids = merge_small_regions((decisions > threshold).astype(np.intp), segmenter.least_areas_)
        return score_masks([truth], [ids], 2).mean

    def own(decisions: Decisions) -> float:
        return image_threshold(decisions, segmenter.threshold_, segmenter.otsu_weight_)

    smoothed = {name: function(decisions) for name, function in FILTERS.items()}
    scores = {name: score(smooth, own(smooth)) for name, smooth in smoothed.items()}
    slope, pixels = float(segmenter.platt_.slope_[0]), decisions.ravel()
    probabilities = segmenter.platt_.predict_proba(pixels)[:, 1]
    # probabilities that do not rise with the decision say nothing of a prior, nor of a threshold
    shift = prior_shift(probabilities, trained) / slope if slope > 0 else 0.0
    scores[PRIOR] = score(decisions, segmenter.threshold_ - shift)
    threshold = expected_iou_threshold(decisions, probabilities) if slope > 0 else own(decisions)
    scores[EXPECTED] = score(decisions, threshold)
    scores[CONTEXT] = score_masks([truth], [second.predict(decisions)], 2).mean
    alone = np.zeros(pixels.size, dtype=np.intp)
    scores[HINDSIGHT] = score(decisions, best_threshold(pixels, truth.ravel(), np.ones(pixels.size), alone))
    return scores


def measure(dataset: Dataset, segmenter: Segmenter, train: list[str], test: list[str]) -> dict[str, Any]:
    """Train once and score every treatment on each test image."""
    images = dict(zip(dataset.stems, dataset.images, strict=True))
    masks = dict(zip(dataset.stems, dataset.masks, strict=True))
    label_map: LabelMap = dataset.label_map
    learnt = [images[stem] for stem in train], [masks[stem] for stem in train]
    segmenter.fit(*learnt, label_map=label_map)
    second = SecondStage(segmenter, *learnt, label_map)
    truth = {stem: label_map.encode(masks[stem]) for stem in [*train, *test]}
    trained = float(np.clip(np.mean([np.mean(truth[stem] == 1) for stem in train]), 1e-4, 1 - 1e-4))
    return {stem: treat(segmenter, second, images[stem], truth[stem], trained) for stem in test}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--train-sizes", type=int, nargs="+", default=[5])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="made-up images, small models: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if arguments.data is None and not arguments.quick:
        parser.error("--data: needed, or --quick")
    options = [f"segkit-no-networks.{with_scattering(SCATTERING_OPTIONS)}"]
    records = []
    with tempfile.TemporaryDirectory() as temporary:
        if arguments.quick:
            arguments.data, arguments.sets = Path(temporary), ["made-up"]
            arguments.train_sizes, arguments.seeds = [2], 1
            write_made_up(arguments.data / "made-up")
            options = [option for option in QUICK if option.startswith("segkit-no-networks.")]
        [method] = load_methods(["segkit-no-networks"], None, options)
        for name, n_train, seed in itertools.product(
            arguments.sets, arguments.train_sizes, range(arguments.seeds)
        ):
            folder = arguments.data / name
            found = measure(
                load_pairs(folder / "images", folder / "masks"),
                method.build(seed),
                *split(folder, seed, n_train),
            )
            records.append({"set": name, "n_train": n_train, "seed": seed, "mean_iou": found})
            write_result(result_path(arguments, "postprocessing.json"), {"records": records})
            means = {
                way: np.mean([scores[way] for scores in found.values()])
                for way in [*FILTERS, PRIOR, EXPECTED, CONTEXT, HINDSIGHT]
            }
            print(
                f"{name} {n_train} {seed}: " + ", ".join(f"{way} {mean:.3f}" for way, mean in means.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
