"""Which factor of a factorial measurement earns what: means of all cells, and main effects with intervals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import difference_of, markdown_table
from segkit.evaluation.statistics import Comparison, compare_pooled

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
_TITLES = {FOREST: "forest", LINEAR: "linear SVM", MIXTURE: "mixture, linear SVM", False: "no", True: "yes"}


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


class Scores(NamedTuple):
    """Mean IoU of one set: of each test image of each seed, by factor in the order of `FACTORS`.

    Parameters
    ----------
    values : ndarray of shape (n, n_features, n_classifiers, n_centrings, n_thresholds)
        Scores.
    images : list of str
        Image of each entry.
    seeds : list of int
        Seed of each entry.
    """

    values: NDArray[np.float64]
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
    """Arrange the scores of the whole seeds by set.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of attribution.json.
    n_train : int
        Number of training images.

    Returns
    -------
    dict of str to Scores
        The scores of each set.
    """
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


def attribution(result: Mapping[str, Any]) -> str:
    """Show the main effects, and below them the mean IoU of each combination; sets have equal weight."""
    rows = result["rows"]
    by_size = {n_train: scores_of(rows, n_train) for n_train in sorted({row["n_train"] for row in rows})}
    sizes = [f"{n} training image{'s' if n > 1 else ''}" for n in by_size]
    effects = []
    for effect in EFFECTS:
        found = [effect_of(scores, effect) for scores in by_size.values()]
        effects.append([effect.title, *(difference_of(one) for one in found)])
    means = {
        n_train: np.mean([values.mean(axis=0) for values, *_ in scores.values()], axis=0)
        for n_train, scores in by_size.items()
    }
    *others, _ = FACTORS.values()
    cells = [
        [FEATURES[levels[0]], *(_TITLES[level] for level in levels[1:])]
        + [f"{mean:.3f}" for of_size in means.values() for mean in of_size[place]]
        for levels, place in zip(
            itertools.product(*others), np.ndindex(*(len(levels) for levels in others)), strict=True
        )
    ]
    header = ["features", "classifier", "centred"]
    header += [f"{size}, {threshold}" for size in sizes for threshold in THRESHOLDS]
    splits = ", ".join(f"{name} {len(seeds)}" for name, seeds in whole_seeds(rows).items())
    return (
        f"{markdown_table(['main effect on mean IoU', *sizes], effects)}\n{markdown_table(header, cells)}\n"
        f"Sets have equal weight. Splits: {splits}."
    )
