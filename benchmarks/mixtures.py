"""Mixtures of Laplacian, ANOVA and polynomial kernels beside that of Gaussians; the default with a quadratic kernel.

    python -m benchmarks.mixtures --data DATA [--sets ...] [--train-sizes 1 5] [--seeds N] [--quick] [--out FILE]

The default recipe without networks, but for its kernels: a mixture of one kind of kernel, of all channels, weighted by
discrepancy, with as many features for each of these kinds. Gaussians and Laplacians get random Fourier features, the other
two kinds Nystroem features. Beside them stand the default itself, which is a linear kernel and Gaussians of the channels
with a value at every pixel, and the default with the quadratic kernel of all channels, half and half. Every model trains on
6,000 pixels, and chooses channels, penalty and threshold on half as many. Scores are those of all test images, on at most
4,096 pixels of a regular grid. Written to mixtures.json, seed by seed; kinds that the file holds are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.attribution import QUICK_PIXELS, TRAINING_PIXELS, Trained, score
from benchmarks.common import (
    difference_of,
    digest_sources,
    markdown_table,
    paired,
    result_path,
    split,
    write_rows,
)
from benchmarks.effects import ADAPTIVE
from benchmarks.segmentation import SETS, write_made_up
from segkit import Segmenter
from segkit.benchmark.machine import machine
from segkit.evaluation.statistics import compare, compare_pooled
from segkit.features import FilterBank, MultiscaleBank
from segkit.images import Dataset, load_pairs
from segkit.kernels import (
    Anova,
    Gaussian,
    Kernel,
    KernelMixture,
    Laplacian,
    LinearGaussianMixture,
    MixtureRFF,
    Polynomial,
)
from segkit.segmentation.segmenter import default_bank

GAUSSIAN = "gaussian"
TITLES = {"laplacian": "Laplacian", "anova": "ANOVA, degree 2", "polynomial": "polynomial, degrees 1 to 5"}
DEFAULT, QUADRATIC = "default", "default and quadratic"
KINDS = (GAUSSIAN, *TITLES, DEFAULT, QUADRATIC)
# Multiples of the inverse mean squared distance, which is 2 for each standardised channel.
MULTIPLES = 4.0 ** np.arange(-3, 4)
DEGREES = range(1, 6)
N_COMPONENTS, N_SCORED = 700, 1000
MOST_TEST_PIXELS = 2**12


class LinearGaussianQuadratic(LinearGaussianMixture):
    """The default mixture and, half and half, the quadratic kernel of all columns in Nystroem features."""

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Fit both parts; the quadratic kernel has as many features as the Gaussians."""
        super().fit(X, y, groups)
        self.quadratic_ = MixtureRFF(
            [Polynomial(2, gamma=1 / self.n_features_in_)],
            n_components=self.n_components,
            max_samples=N_SCORED,
            random_state=self.random_state,
        ).fit(X, y)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Map rows to the features of both parts, side by side."""
        return np.hstack([super().transform(X), self.quadratic_.transform(X)]) * np.float32(np.sqrt(0.5))

    def dot(self, X: ArrayLike, coef: NDArray[Any]) -> NDArray[Any]:
        """Compute ``transform(X) @ coef.T``."""
        return np.asarray(self.transform(X) @ coef.T)

    def linear_coef(self, coef: NDArray[Any]) -> None:  # type: ignore[override]
        """Give no linear part: both parts are computed together."""

    @property
    def nonlinear_columns(self) -> NDArray[np.intp]:
        """All columns."""
        return np.arange(self.n_features_in_)

    def nonlinear_dot(self, X: NDArray[Any], coef: NDArray[Any]) -> NDArray[Any]:
        """Compute ``transform(X) @ coef.T``."""
        return self.dot(X, coef)


def kernels_of(kind: str, n_channels: int) -> list[Kernel]:
    """Make the kernels of a mixture.

    Parameters
    ----------
    kind : {"gaussian", "laplacian", "anova", "polynomial"}
        Kind of kernel.
    n_channels : int
        Number of standardised channels, all of which the kernels see.

    Returns
    -------
    list of Kernel
        The base kernels: of several bandwidths or, of polynomials, of several degrees.
    """
    made: dict[str, list[Kernel]] = {
        GAUSSIAN: [Gaussian(float(one)) for one in MULTIPLES / (2 * n_channels)],
        "laplacian": [Laplacian(float(one)) for one in np.sqrt(MULTIPLES / (2 * n_channels))],
        "anova": [Anova(float(one)) for one in MULTIPLES / 2],
        "polynomial": [Polynomial(degree, gamma=1 / n_channels) for degree in DEGREES],
    }
    return made[kind]


def mixture_of(kind: str, n_channels: int) -> KernelMixture:
    """Make the mixture of one kind, of standardised channels."""
    if kind in (DEFAULT, QUADRATIC):
        return LinearGaussianMixture() if kind == DEFAULT else LinearGaussianQuadratic()
    return MixtureRFF(kernels_of(kind, n_channels), n_components=N_COMPONENTS, max_samples=N_SCORED)


def train(
    dataset: Dataset, stems: Sequence[str], bank: FilterBank, kind: str, seed: int, n_pixels: int
) -> Trained:
    """Train on some images with a mixture of one kind of kernel."""
    places = [dataset.stems.index(stem) for stem in stems]
    images, masks = ([arrays[place] for place in places] for arrays in (dataset.images, dataset.masks))
    model = Segmenter(
        bank,
        kernels=mixture_of(kind, bank.n_channels(images[0].shape[2])),
        selection_pixels=n_pixels // 2,
        training_pixels=n_pixels,
        random_state=seed,
    )
    start = time.perf_counter()
    model.fit(images, masks, label_map=dataset.label_map)
    return Trained(len(stems), kind, centred=True, model=model, seconds=time.perf_counter() - start)


def measure(
    dataset: Dataset,
    folder: Path,
    sizes: Sequence[int],
    bank: FilterBank,
    seed: int,
    n_pixels: int,
    kinds: Sequence[str] = KINDS,
) -> list[dict[str, Any]]:
    """Measure kinds of kernels on one split of a set: a row for each kind and number of training images."""
    splits = {n_train: split(folder, seed, n_train) for n_train in sizes}
    trained = [
        train(dataset, stems, bank, kind, seed, n_pixels)
        for (stems, _), kind in itertools.product(splits.values(), kinds)
    ]
    rows = [
        {
            "kind": one.classifier,
            "n_train": one.n_train,
            "lambda": one.model.lambda_,
            "weights": np.round(one.model.classifier_.kernels_.weights_, 4).tolist(),
            "fit_seconds": round(one.seconds, 2),
            "images": {},
        }
        for one in trained
    ]
    # the test images do not depend on the number of training images
    _, test = splits[sizes[0]]
    for stem in test:
        for one, threshold, iou in score(dataset, stem, bank, trained, MOST_TEST_PIXELS):
            if threshold == ADAPTIVE:
                rows[trained.index(one)]["images"][stem] = round(iou, 6)
    return rows


def mixtures(result: Mapping[str, Any]) -> str:
    """Make the table: each kind of kernel less the Gaussian mixture, on each set and on all, with paired intervals."""
    scores: dict[tuple[str, str, int], dict[tuple[int, str], float]] = {}
    for row in result["rows"]:
        found = scores.setdefault((row["set"], row["kind"], row["n_train"]), {})
        found |= {(row["seed"], image): iou for image, iou in row["images"].items()}
    sets = [name for name in SETS if any(name == key[0] for key in scores)]
    compared = [(f"{title}, less it", kind, GAUSSIAN) for kind, title in TITLES.items()]
    compared += [
        ("the default, less it", DEFAULT, GAUSSIAN),
        ("the default and a quadratic kernel, less the default", QUADRATIC, DEFAULT),
    ]
    rows = []
    for n_train in sorted({n_train for *_, n_train in scores}):
        means = [np.mean(list(scores[name, GAUSSIAN, n_train].values())) for name in sets]
        rows.append(
            (n_train, "Gaussian, mean IoU", *(f"{mean:.3f}" for mean in means), f"{np.mean(means):.3f}")
        )
        for title, kind, base in compared:
            pairs = [
                paired(*(scores.get((name, which, n_train), {}) for which in (kind, base))) for name in sets
            ]
            known = [pair for pair in pairs if pair is not None]
            cells = ["" if pair is None else difference_of(compare(*pair)) for pair in pairs]
            rows.append((n_train, title, *cells, difference_of(compare_pooled(known)) if known else ""))
    header = ("training images", "mixture of kernels", *sets, "sets with equal weight")
    seeds = {name: sorted({row["seed"] for row in result["rows"] if row["set"] == name}) for name in sets}
    splits = ", ".join(f"{name} {len(own)}" for name, own in seeds.items())
    return f"{markdown_table(header, rows)}\nSplits: {splits}."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with a folder for each set")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--train-sizes", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="made-up images, small bank: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if arguments.data is None and not arguments.quick:
        parser.error("--data: needed, or --quick")
    with tempfile.TemporaryDirectory() as temporary:
        bank, n_pixels = default_bank(), TRAINING_PIXELS
        if arguments.quick:
            bank, n_pixels = MultiscaleBank(sigma_max=2), QUICK_PIXELS
            arguments.data, arguments.sets = Path(temporary), ["made-up"]
            arguments.train_sizes, arguments.seeds = [2], 1
            write_made_up(arguments.data / "made-up")
        path = result_path(arguments, "mixtures.json")
        rows = json.loads(path.read_text())["rows"] if path.exists() and not arguments.quick else []
        for seed, name in itertools.product(range(arguments.seeds), arguments.sets):
            known = {"set": name, "seed": seed}
            found = {row["kind"] for row in rows if known.items() <= row.items()}
            if not (kinds := [kind for kind in KINDS if kind not in found]):
                continue
            folder, start = arguments.data / name, time.perf_counter()
            dataset = load_pairs(folder / "images", folder / "masks")
            measured = measure(dataset, folder, arguments.train_sizes, bank, seed, n_pixels, kinds)
            rows += [known | row | {"sources": digest_sources()} for row in measured]
            header = {"images": "mean IoU of each test image", "machine": machine()}
            write_rows(path, header, rows)
            print(f"{seed} {name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
