"""A first look at sets that nothing was chosen on: segkit's recipes, the paper's, and the pixel forest.

    git worktree add FOLDER 8f561fb && cp benchmarks/results/first-look/first_look.py FOLDER/benchmarks && cd FOLDER
    python -m benchmarks.first_look --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz [--seeds N] [--quick]

8f561fb is the last commit before any of these sets was used. DATA holds a folder for each set with images/, masks/ and,
where images belong together, groups.csv. Of a volume (`VOLUMES`) the last third is tested on. Each run is kept in SET.json
when it is done, so that a cut run goes on where it stopped.

"forest-centred" is the pixel forest with what segkit gives its own classifier: each feature less its mean over the image,
and segkit's threshold "quantile+otsu", found on held-out images (blocks, of a single image).
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from benchmarks.segmentation import Results, list_last, overrides_of, parse, parser_of, write_made_up
from segkit._common import FloatArray, Progress, pass_on
from segkit.baselines import PixelForest
from segkit.benchmark import Benchmark, load_methods, methods, unit
from segkit.features import MultiscaleBank
from segkit.features.normalised import even_grid
from segkit.images.sampling import PixelSample, assign_folds, draw_pixels
from segkit.segmentation.base import IdArray
from segkit.segmentation.threshold import label_pixels, quantile_threshold, weight_of_otsu

SETS = ("monuseg", "usiigaci_phase", "lung_cxr", "axon_sem", "wbc_cellavision", "vnc_mito")
METHODS = ("segkit-no-networks", "forest", "forest-centred", "segkit-networks", "segkit-paper")
LABELS = {
    "axon_sem": {0: "background", 1: "myelin", 2: "axon"},
    "wbc_cellavision": {0: "background", 1: "cytoplasm", 2: "nucleus"},
}
# Images at the end of a set that is one volume: neighbouring slices look alike.
VOLUMES = {"vnc_mito": 7}
# Pixels of the held-out forests, as many as segkit's held-out classifiers have.
HELD_OUT_PIXELS = 6000
N_FOLDS = 5


class CentredForest(PixelForest):
    """The pixel forest with centring by image, and segkit's threshold for two classes."""

    def _fit(self, images: list[FloatArray], ids: list[IdArray], progress: Progress) -> None:  # noqa: ARG002
        rng = np.random.default_rng(self.random_state)
        self.bank_ = MultiscaleBank().fit(images)
        self.forest_ = RandomForestClassifier(
            self.n_estimators, n_jobs=self.n_jobs, random_state=self.random_state
        )
        drawn = draw_pixels(ids, self.classes_.size, self.training_pixels, rng)
        X = np.concatenate([self._centred(image, drawn, index) for index, image in enumerate(images)])
        self.forest_.fit(X, drawn.label, sample_weight=drawn.weight)
        self._threshold, self._otsu = 0.0, 0.0
        if self.classes_.size == 2:
            rows = np.sort(rng.choice(len(X), min(len(X), HELD_OUT_PIXELS), replace=False))
            self._find_threshold(X[rows], drawn.subset(rows), [mask.shape for mask in ids])

    def _find_threshold(self, X: FloatArray, drawn: PixelSample, shapes: list[tuple[int, int]]) -> None:
        fold = assign_folds(drawn, shapes, N_FOLDS)
        decision = np.full(len(X), np.nan)
        for index in np.unique(fold):
            others, mine = fold != index, fold == index
            if np.unique(drawn.label[others]).size == 2:
                judge = type(self.forest_)(**self.forest_.get_params())
                judge.fit(X[others], drawn.label[others], sample_weight=drawn.weight[others])
                decision[mine] = 2 * judge.predict_proba(X[mine])[:, 1] - 1
        judged = ~np.isnan(decision)
        region = drawn.image if len(shapes) > 1 else fold
        if np.unique(drawn.label[judged]).size == 2:
            self._otsu = weight_of_otsu(len(shapes))
            self._threshold = quantile_threshold(
                decision[judged], drawn.label[judged], drawn.weight[judged], region[judged]
            )

    def _centred(self, image: FloatArray, drawn: PixelSample, index: int) -> FloatArray:
        part = drawn.of_image(index)
        return np.asarray(self.bank_.sample(image, drawn.row[part], drawn.col[part]) - self._means(image))

    def _means(self, image: FloatArray) -> FloatArray:
        return np.asarray(self.bank_.sample(image, *even_grid(image.shape)).mean(axis=0))

    def _scores(self, image: FloatArray, progress: Progress = pass_on) -> FloatArray:  # noqa: ARG002
        rows, cols = (axis.ravel() for axis in np.indices(image.shape[:2]))
        X, means = self.bank_.sample(image, rows, cols), self._means(image)
        parts = [self.forest_.predict_proba(part - means) for part in np.array_split(X, 8)]
        return np.concatenate(parts).reshape(*image.shape[:2], -1).astype(np.float32)

    def _labels(self, scores: FloatArray) -> NDArray[np.intp]:
        decision = 2 * scores[..., 1:] - 1 if self.classes_.size == 2 else scores
        return label_pixels(decision, self._threshold, self._otsu)


class _CentredOptions(methods._ForestOptions):
    """Options of `CentredForest`."""

    def build(self, seed: int, checkpoint: str | None = None) -> CentredForest:  # noqa: ARG002
        """Make the forest; it has no checkpoints."""
        return CentredForest(
            n_estimators=self.n_estimators, training_pixels=self.training_pixels, n_jobs=-1, random_state=seed
        )


methods._KINDS["forest-centred"] = _CentredOptions


def measure(
    folder: Path, results: Results, work: Path, arguments: argparse.Namespace, options: list[str]
) -> None:
    """Run what is missing of one set, seed by seed."""
    groups = folder / "groups.csv"
    last = VOLUMES.get(results.name)
    benchmark = Benchmark(
        folder / "images",
        folder / "masks",
        work,
        load_methods(arguments.methods, None, options),
        arguments.train_sizes,
        range(arguments.seeds),
        labels=LABELS.get(results.name),
        groups=groups if groups.exists() else None,
        test=None if last is None else list_last(folder, last, work.with_suffix(".txt")),
    )
    for one in sorted(benchmark.units, key=lambda one: one.seed):
        if not results.holds(one.method.name, one.n_train, one.seed):
            outcome: dict[str, Any] = unit.run_unit(benchmark._job(one))
            # folders of this machine are nobody's business
            own = [
                re.sub(r'(weights"?[=:] ?"?)[^",]*/', r"\1", option)
                for option in options
                if option.startswith(f"{one.method.name}.")
            ]
            results.add(outcome, {"options": own})
            mean = np.mean([record["mean_iou"] for record in outcome["records"]])
            print(
                f"{results.name} {one.name}: {mean:.3f} ({outcome['unit']['fit_seconds']:.0f} s)", flush=True
            )


def main() -> None:
    parser = parser_of(__doc__, methods=METHODS, train_sizes=[1, 5])
    parser.set_defaults(sets=SETS)
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--device", default="auto")
    arguments = parse(parser)
    forest = ["forest-centred.kind=forest-centred", "forest-centred.title=pixel forest, centred"]
    with tempfile.TemporaryDirectory() as temporary:
        made_up = Path(temporary) / "made-up"
        if arguments.quick:
            write_made_up(made_up)
            arguments.methods, arguments.train_sizes, arguments.seeds = (
                ["forest", "forest-centred"],
                [1, 2],
                1,
            )
            arguments.sets = ["made-up"]
            forest.append("forest-centred.training_pixels=1000")
        forest = [option for option in forest if "forest-centred" in arguments.methods]
        options = [*([] if arguments.quick else overrides_of(arguments)), *forest]
        for seeds in range(1, arguments.seeds + 1):
            arguments.seeds = seeds
            for name in arguments.sets:
                folder = made_up if arguments.quick else arguments.data / name
                results = Results(arguments.out / f"{name}.json", name)
                measure(folder, results, Path(temporary) / f"{name}-{seeds}", arguments, options)


if __name__ == "__main__":
    main()
