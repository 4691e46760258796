"""The choices of a fitted segmenter, as numbers for the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.images.sampling import draw_pixels
from segkit.kernels import MixtureRFF
from segkit.segmentation.segmenter import Segmenter
from segkit.segmentation.summary import explain_training

# Number of pixels in the plane (figure 7), and of random features behind their positions.
_N_EMBEDDED = 400
_N_COMPONENTS = 512
CRITERIA = {
    "mmd": "MMD",
    "u_statistic": "MMD (U-statistic of pairs)",
    "mmd_squared": "squared MMD",
    "alignment": "alignment",
    "centered_alignment": "centred alignment",
    "power": "test power",
}


def choices(
    segmenter: Segmenter, training: Sequence[tuple[NDArray[Any], NDArray[Any]]] | None = None
) -> dict[str, Any]:
    """List the kept channels, the scores of the kernels, and the classes in the plane."""
    # the plane is figure 7 of M. Badiei Khuzani et al.: t-SNE of features of the kernels of highest and lowest score
    summary = segmenter.summary_
    kernels = summary.kernels
    return {
        "bank": segmenter.bank_.label,
        "kept_channels": summary.kept_channels,
        "n_channels": summary.n_channels,
        "kernels": kernels,
        "criterion": segmenter.classifier_.kernels_.criterion,
        "threshold": segmenter.rule_.threshold,
        "words": explain_training(summary, segmenter.label_map_),
        "embedding": None if training is None else _embed(segmenter, kernels, training),
    }


def _embed(
    segmenter: Segmenter,
    kernels: Sequence[dict[str, Any]],
    training: Sequence[tuple[NDArray[Any], NDArray[Any]]],
) -> list[dict[str, Any]] | None:
    # The plane shows bandwidths: without two kernels that have one, there is nothing to compare.
    scored = [kernel for kernel in kernels if kernel["gamma"] is not None]
    if len(scored) < 2:
        return None
    rng = np.random.default_rng(segmenter.random_state)
    drawn = draw_pixels([ids for _, ids in training], segmenter.classes_.size, _N_EMBEDDED, rng)
    X = np.concatenate(
        [
            segmenter.pixel_features(image, drawn.row[part], drawn.col[part])
            for index, (image, _) in enumerate(training)
            for part in [drawn.of_image(index)]
        ]
    )
    X = segmenter.classifier_.kernels_.nonlinear_input(X)
    best = max(scored, key=lambda kernel: kernel["score"])
    worst = min(scored, key=lambda kernel: kernel["score"])
    return [
        {
            "title": f"{rank} {CRITERIA[segmenter.classifier_.kernels_.criterion]}, gamma = {kernel['gamma']:.3g}",
            "gamma": kernel["gamma"],
            "xy": _plane(X, drawn.label, kernel["gamma"]),
            "label": drawn.label.tolist(),
        }
        for rank, kernel in (("highest", best), ("lowest", worst))
    ]


def _plane(X: NDArray[Any], labels: NDArray[Any], gamma: float) -> list[list[float]]:
    """Place pixels in the plane by t-SNE of the random features of one bandwidth."""
    from sklearn.manifold import TSNE

    features = MixtureRFF(gammas=[gamma], n_components=_N_COMPONENTS, random_state=0).fit_transform(X, labels)
    perplexity = min(30.0, (len(X) - 1) / 3)
    placed = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features)
    return [[round(float(value), 3) for value in position] for position in placed]
