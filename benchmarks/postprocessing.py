"""What smoothing of decision maps, or another threshold for each image, would add to the default recipe without weights.

    python -m benchmarks.postprocessing --data DATA [--sets ...] [--train-sizes ...] [--seeds N] [--quick]

The decisions of one fit are treated in several ways, on the splits of `benchmarks.segmentation`. Smoothing takes
neighbours for alike; the prior of an image is found by expectation maximisation on its calibrated probabilities
(M. Saerens, P. Latinne, C. Decaestecker, Neural Computation 14, 2002); the best threshold in hindsight, which looks at
the truth, says how much any rule for thresholds could add. Written to postprocessing.json.
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

from benchmarks.common import result_path, split, write_result
from benchmarks.segmentation import QUICK, SETS, write_made_up
from segkit import Segmenter
from segkit.benchmark import load_methods
from segkit.calibration import best_threshold, image_threshold
from segkit.images import Dataset, LabelMap, load_pairs
from segkit.metrics import score_masks
from segkit.regions import merge_small_regions

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
HINDSIGHT = "best threshold of each image in hindsight"


def prior_shift(probabilities: NDArray[np.float64], trained: float, n_steps: int = 100) -> float:
    """Log-odds by which the prior of an image exceeds that of the training images."""
    prior = trained
    for _ in range(n_steps):
        positive = probabilities * prior / trained
        negative = (1 - probabilities) * (1 - prior) / (1 - trained)
        prior = float(np.clip((positive / (positive + negative)).mean(), 1e-4, 1 - 1e-4))
    return float(logit(prior) - logit(trained))


def treat(segmenter: Segmenter, image: NDArray[Any], truth: NDArray[Any], trained: float) -> dict[str, float]:
    """Mean IoU of an image, its decisions treated in each way."""
    decisions = segmenter.decision_function(image)

    def score(decisions: Decisions, threshold: float) -> float:
        ids = merge_small_regions((decisions > threshold).astype(np.intp), segmenter.least_areas_)
        return score_masks([truth], [ids], 2).mean

    def own(decisions: Decisions) -> float:
        return image_threshold(decisions, segmenter.threshold_, segmenter.otsu_weight_)

    smoothed = {name: function(decisions) for name, function in FILTERS.items()}
    scores = {name: score(smooth, own(smooth)) for name, smooth in smoothed.items()}
    slope = float(segmenter.platt_.slope_[0])
    shift = prior_shift(segmenter.platt_.predict_proba(decisions.ravel())[:, 1], trained)
    # probabilities that do not rise with the decision say nothing of a prior
    scores[PRIOR] = score(decisions, segmenter.threshold_ - (shift / slope if slope > 0 else 0))
    pixels = decisions.ravel()
    alone = np.zeros(pixels.size, dtype=np.intp)
    scores[HINDSIGHT] = score(decisions, best_threshold(pixels, truth.ravel(), np.ones(pixels.size), alone))
    return scores


def measure(dataset: Dataset, segmenter: Segmenter, train: list[str], test: list[str]) -> dict[str, Any]:
    """Train once and score every treatment on each test image."""
    images = dict(zip(dataset.stems, dataset.images, strict=True))
    masks = dict(zip(dataset.stems, dataset.masks, strict=True))
    label_map: LabelMap = dataset.label_map
    segmenter.fit([images[stem] for stem in train], [masks[stem] for stem in train], label_map=label_map)
    truth = {stem: label_map.encode(masks[stem]) for stem in [*train, *test]}
    trained = float(np.clip(np.mean([np.mean(truth[stem] == 1) for stem in train]), 1e-4, 1 - 1e-4))
    return {stem: treat(segmenter, images[stem], truth[stem], trained) for stem in test}


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
    options: list[str] = []
    records = []
    with tempfile.TemporaryDirectory() as temporary:
        if arguments.quick:
            arguments.data, arguments.sets = Path(temporary), ["made-up"]
            arguments.train_sizes, arguments.seeds = [2], 1
            write_made_up(arguments.data / "made-up")
            options = [option for option in QUICK if option.startswith("segkit-scattering.")]
        [method] = load_methods(["segkit-scattering"], None, options)
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
                for way in [*FILTERS, PRIOR, HINDSIGHT]
            }
            print(
                f"{name} {n_train} {seed}: " + ", ".join(f"{way} {mean:.3f}" for way, mean in means.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
