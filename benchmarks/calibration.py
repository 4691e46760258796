"""Calibration of the probabilities: how often a class is there where it is said to be, and whether the mask agrees.

    python -m benchmarks calibration --data DATA [--sets ...] [--seeds N]

DATA holds a folder for each set with images/ and masks/. Split k is split k of `segkit benchmark`: a third of the images is
tested on, at most 12 of it. The default recipe without networks is trained, without smoothing away small regions. The code
is a setting, so that a later commit is measured beside an earlier one.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage import N_TEST, ImageSet, make_set, read_set
from benchmarks.rows import Row, Study, commit, flat
from benchmarks.segmentation import DEVELOPMENT
from segkit.benchmark import few_shot_split
from segkit.features import MultiscaleBank
from segkit.images import UNLABELLED
from segkit.segmentation.segmenter import Segmenter

N_TRAIN = (1, 3, 10)
N_SEEDS, N_BINS = 2, 15


def calibration_error(probability: NDArray[Any], truth: NDArray[np.bool_]) -> float:
    """Compute the expected calibration error: what bins of probabilities are off, mean over pixels (Naeini et al., 2015)."""
    place = np.minimum((probability * N_BINS).astype(int), N_BINS - 1)
    said, there = (np.bincount(place, values, N_BINS) for values in (probability, truth))
    return float(np.abs(said - there).sum() / truth.size)


def measure(own: ImageSet, model: Segmenter, n_train: int) -> dict[str, Any]:
    """Train and test one split, of the model's seed."""
    split = few_shot_split(list(own.images), n_train, model.random_state)
    model.fit(*own.lesson(split.train), label_map=own.label_map)
    probabilities, truths, agreeing = [], [], []
    for stem in split.test[:N_TEST]:
        found, truth = model.segment(own.images[stem]), model.label_map_.encode(own.masks[stem])
        most = model.classes_[found.probability.argmax(axis=2)]
        agreeing.append(np.mean(most == found.labels))
        known = truth != UNLABELLED
        probabilities.append(found.probability[known])
        truths.append(truth[known])
    probability, truth = np.concatenate(probabilities), np.concatenate(truths)
    errors = [calibration_error(probability[:, k], truth == k) for k in range(1, model.classes_.size)]
    return {"error": round(float(np.mean(errors)), 4), "agreement": round(float(np.mean(agreeing)), 4)}


def run(study: Study) -> None:
    names: list[Any] = [None] if study.quick else list(study.sets or DEVELOPMENT)
    recipe = (
        {"bank": MultiscaleBank(), "selection_pixels": 400, "training_pixels": 1000} if study.quick else {}
    )
    for name in names:
        own = make_set("made-up", 18, 0) if name is None else read_set(study.folder(name))
        for n_train, seed in itertools.product(N_TRAIN, range(study.seeds or N_SEEDS)):
            model = Segmenter(**recipe, random_state=seed, smallest_region=0)
            study.row(
                {"code": commit(), "set": own.name, "n_train": n_train, "seed": seed},
                lambda own=own, model=model, n_train=n_train: measure(own, model, n_train),
            )


def calibration(rows: list[Row]) -> str:
    """Tabulate error and agreement by set and number of training images, a pair of columns for each commit."""
    found = flat(rows)
    codes = list(dict.fromkeys(row["code"] for row in found))
    lines = [
        "| set | training images | " + " | ".join(f"error, {code} | agreement" for code in codes) + " |",
        "|---|---|" + "---|" * (2 * len(codes)),
    ]
    for name, n_train in dict.fromkeys((row["set"], row["n_train"]) for row in found):
        cells = []
        for code in codes:
            mine = [
                row for row in found if (row["set"], row["n_train"], row["code"]) == (name, n_train, code)
            ]
            cells += [
                f"{np.mean([row['error'] for row in mine]):.3f}" if mine else "",
                f"{100 * np.mean([row['agreement'] for row in mine]):.1f} %" if mine else "",
            ]
        lines.append(f"| {name} | {n_train} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {"calibration": calibration}
