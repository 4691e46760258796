"""Promises of the alarms: expected IoU beside the true one, coverage of the margins, and alarms of unlike images.

    python -m benchmarks coverage --data DATA [--sets ...] [--seeds N]

DATA holds a folder for each set with images/ and masks/. Split k is split k of `segkit benchmark`: a third of the images is
tested on, at most 12 of it, and 10 of the others are trained on, by the default recipe without networks. For each test image
the expected object IoU and the margins are kept, and the true one. The first `SEEDS_OF_FEW` splits are trained on 5 images
too.
The first `SEEDS_SPOILT` also tell how often images of the other sets, and test images spoilt on purpose, are called unlike
the training images, and what the spoiling costs in mean IoU.

How textures and halves are compared, and the probabilities of false alarms, were chosen on these four sets, on splits 100 to
107. The margins have nothing to choose.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.stats import spearmanr
from skimage.transform import rescale

from benchmarks.markdown import with_interval
from benchmarks.rows import Row, Study, flat
from benchmarks.segmentation import DEVELOPMENT
from segkit._common import FloatArray
from segkit.benchmark import few_shot_split
from segkit.cli.phantom import make_demo_set
from segkit.errors import count
from segkit.evaluation.metrics import Scores, score_masks
from segkit.evaluation.statistics import bootstrap_interval
from segkit.features import MultiscaleBank
from segkit.images import LabelMap, load_pairs
from segkit.images.alike import with_channels
from segkit.segmentation.segmenter import Segmenter

N_TRAIN, N_FEW, N_TEST = 10, 5, 12
# Images of a split that are spoilt, and images of each other set.
N_SPOILT, N_OTHER = 2, 2
SEEDS_OF_FEW, SEEDS_SPOILT = 25, 12
# Ways to spoil images; masks keep their size but for larger pixels.
FAULTS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "brightness times 0.4": lambda image: 0.4 * image,
    "inverted": lambda image: 1 - image,
    "left half inverted": lambda image: np.concatenate(
        [1 - image[:, : image.shape[1] // 2], image[:, image.shape[1] // 2 :]], axis=1
    ),
    "blurred, sigma 3": lambda image: gaussian_filter(image, (3, 3, 0)),
    "pixels twice as large": lambda image: rescale(image, 0.5, channel_axis=2, anti_aliasing=True),
    "16 bits, read 257 times darker": lambda image: image / 257,
    "red and blue swapped": lambda image: image[:, :, ::-1],
}
# Alarms by the words that tell them.
KINDS = {
    "brightness": "(mean ",
    "contrast": "(standard deviation ",
    "size": "smaller than",
    "halves": "hal",
    "texture": "texture unlike",
}


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images (H, W, C) and masks by stem."""

    name: str
    label_map: LabelMap
    images: dict[str, FloatArray]
    masks: dict[str, Any]

    def lesson(self, stems: Sequence[str]) -> tuple[list[FloatArray], list[Any]]:
        """Return images and masks of some stems."""
        return [self.images[stem] for stem in stems], [self.masks[stem] for stem in stems]


def read_set(folder: Path) -> ImageSet:
    """Read a set."""
    dataset = load_pairs(folder / "images", folder / "masks")
    images = [image if image.ndim == 3 else image[:, :, None] for image in dataset.images]
    return ImageSet(
        folder.name,
        dataset.label_map,
        dict(zip(dataset.stems, images, strict=True)),
        dict(zip(dataset.stems, dataset.masks, strict=True)),
    )


def make_set(name: str, n_images: int, seed: int) -> ImageSet:
    """Make up a small set."""
    images, masks = make_demo_set(n_images, shape=(64, 96), random_state=seed)
    stems = [f"{index:02d}" for index in range(n_images)]
    lighter = [np.asarray(image[..., None] if image.ndim == 2 else image, np.float32) for image in images]
    return ImageSet(
        name,
        LabelMap.infer([0, 1]),
        dict(zip(stems, lighter, strict=True)),
        dict(zip(stems, masks, strict=True)),
    )


def measure(own: ImageSet, others: Iterable[ImageSet], model: Segmenter, n_train: int) -> dict[str, Any]:
    """Train and test one split, of the model's seed; with other sets, spoil images too."""
    seed = model.random_state
    split = few_shot_split(list(own.images), n_train, seed)
    model.fit(*own.lesson(split.train), label_map=own.label_map)
    test = split.test[:N_TEST]
    tested = [_test(model, own.images[stem], own.masks[stem]) for stem in test]
    figures = {
        "margins": [tested[0][0].margin_80, tested[0][0].margin_90],
        "images": [
            [
                stem,
                check.expected_object_iou,
                None if np.isnan(scores.object_iou) else scores.object_iou,
                _alarms(check),
            ]
            for stem, (check, scores) in zip(test, tested, strict=True)
        ],
    }
    if others := list(others):
        figures |= _with_faults(model, own, test[:N_SPOILT]) | {"others": _with_others(model, others, seed)}
    return _rounded(figures)


def _test(model: Segmenter, image: FloatArray, mask: Any) -> tuple[Any, Scores]:
    """Check and score the prediction of an image."""
    found = model.segment(image)
    encode = model.label_map_.encode
    return found.check, score_masks([encode(mask)], [encode(found.labels)], model.classes_.size)


def _alarms(check: Any) -> list[str]:
    """Name the alarms of a check."""
    kinds = [kind for kind, words in KINDS.items() if any(words in note for note in check.unlike)]
    return [*kinds, *(["one class"] if check.one_class else [])]


def _with_faults(model: Segmenter, own: ImageSet, stems: Sequence[str]) -> dict[str, Any]:
    spoilt: dict[str, list[Any]] = {}
    for stem in stems:
        image, mask = own.images[stem], own.masks[stem]
        before = _test(model, image, mask)[1].mean
        for fault, spoil in FAULTS.items():
            if fault.startswith("red") and image.shape[2] < 3:
                continue
            changed = np.clip(np.ascontiguousarray(spoil(image), dtype=np.float32), 0, 1)
            shape = changed.shape[:2]
            rows, cols = (np.arange(new) * old // new for new, old in zip(shape, mask.shape, strict=True))
            check, scores = _test(model, changed, mask[np.ix_(rows, cols)])
            spoilt.setdefault(fault, []).append([before, scores.mean, _alarms(check)])
    return {"spoilt": spoilt}


def _with_others(model: Segmenter, others: Sequence[ImageSet], seed: int) -> dict[str, list[Any]]:
    found = {}
    for other in others:
        stems = np.random.default_rng(seed).permutation(list(other.images))[:N_OTHER]
        images = [with_channels(other.images[stem], model.n_image_channels_) for stem in stems]
        found[other.name] = [_alarms(one.check) for one in model.segment(images)]
    return found


def _rounded(value: Any) -> Any:
    """Round all numbers of a result."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return round(value, 5) if isinstance(value, float) else value


def run(study: Study) -> None:
    if study.quick:
        sets = [make_set(name, 18, seed) for seed, name in enumerate(("made-up", "another"))]
        recipe = {"bank": MultiscaleBank(), "selection_pixels": 400, "training_pixels": 1000}
        plan = [(0, N_TRAIN)]
    else:
        sets, recipe = [read_set(study.folder(name)) for name in study.sets or DEVELOPMENT], {}
        n_seeds = study.seeds or 50
        plan = [(seed, N_TRAIN) for seed in range(n_seeds)]
        plan += [(seed, N_FEW) for seed in range(min(n_seeds, SEEDS_OF_FEW))]
    for (seed, n_train), own in itertools.product(plan, sets[: 1 if study.quick else None]):
        others = [other for other in sets if other is not own] if seed < SEEDS_SPOILT else []
        study.row(
            {"set": own.name, "n_train": n_train, "seed": seed},
            lambda own=own, others=others, seed=seed, n_train=n_train: measure(
                own, others, Segmenter(**recipe, random_state=seed), n_train
            ),
        )


def coverage(rows: list[Row]) -> str:
    """Tabulate the coverage of the margins, by set and number of training images: of intervals shown, and of the others."""
    splits_of_all = flat(rows)
    lines = [
        "| training images | set | splits | level | margin | intervals shown | the worst fifth of these | images with a "
        "warning, which have none | Spearman's correlation |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for n_train in sorted({split["n_train"] for split in splits_of_all}, reverse=True):
        mine = [split for split in splits_of_all if split["n_train"] == n_train]
        for name in (*sorted({split["set"] for split in mine}), None):
            chosen = [split for split in mine if name in (split["set"], None)]
            lines += _coverage_lines(n_train, name or "all", chosen)
    n_images = sum(len(split["images"]) for split in splits_of_all)
    return "\n".join(
        [
            *lines,
            "",
            f"Shares of {n_images:,} predictions whose true object IoU is within the margin, with 95 % bootstrap intervals "
            "over splits and test images. Correlation of expected with true object IoU in a split, mean over splits.",
        ]
    )


def alarms(rows: list[Row]) -> str:
    """Tabulate how often images are called unlike the training images, and what it costs to be so."""
    splits_of_all = flat(rows)
    numbers = sorted({split["n_train"] for split in splits_of_all}, reverse=True)
    lines = [
        "| image | "
        + " | ".join(f"alarms, {n} training images" for n in numbers)
        + " | most by | mean IoU |",
        "|---|" + "---|" * (len(numbers) + 2),
    ]
    of_number = [[split for split in splits_of_all if split["n_train"] == n] for n in numbers]
    names = sorted({split["set"] for split in splits_of_all})
    own = [
        [
            [image[3] for split in splits if split["set"] in chosen for image in split["images"]]
            for splits in of_number
        ]
        for chosen in (*([name] for name in names), names)
    ]
    for name, told in zip((*names, "all sets"), own, strict=True):
        lines.append(f"| unseen, of the same set: {name} | {_rates(told)} | {_most(told)} | |")
    others = [
        [
            told
            for split in splits
            if "others" in split
            for found in split["others"].values()
            for told in found
        ]
        for splits in of_number
    ]
    lines.append(f"| of another set | {_rates(others)} | {_most(others)} | |")
    faults = list(dict.fromkeys(fault for split in splits_of_all for fault in split.get("spoilt", ())))
    for fault in faults:
        spoilt = [
            [one for split in splits for one in split.get("spoilt", {}).get(fault, ())]
            for splits in of_number
        ]
        told = [[one[2] for one in found] for found in spoilt]
        before, after = np.mean([one[:2] for found in spoilt for one in found], axis=0)
        if "size" in _most(told):  # which tells nothing where images are cut from larger ones
            rest = [[[kind for kind in kinds if kind != "size"] for kinds in found] for found in told]
            lines.append(
                f"| {fault}, size not looked at | {_rates(rest)} | {_most(rest)} | {before:.2f} to {after:.2f} |"
            )
        lines.append(f"| {fault} | {_rates(told)} | {_most(told)} | {before:.2f} to {after:.2f} |")
    counts = [len(told) for told in others]
    n_spoilt = sum(
        len(found) for split in splits_of_all for found in list(split.get("spoilt", {}).values())[:1]
    )
    return "\n".join(
        [
            *lines,
            "",
            f"Shares of images called unlike the training images. {' and '.join(map(str, counts))} images are of other "
            f"sets, {n_spoilt} are spoilt in each way. Mean IoU before and after.",
        ]
    )


def _coverage_lines(n_train: int, name: str, splits: Sequence[dict[str, Any]]) -> list[str]:
    """Write a line for each level whose margin is known."""
    correlations = [
        spearmanr(*np.array([image[1:3] for image in split["images"] if None not in image[1:3]]).T)[0]
        for split in splits
    ]
    lines = []
    for place, level in enumerate(("80 %", "90 %")):
        margins = [split["margins"][place] for split in splits]
        if None in margins:
            continue
        found = [
            (f"{split['set']}/{stem}", number, true, abs(expected - true) <= margin, bool(_unlike(told)))
            for number, (split, margin) in enumerate(zip(splits, margins, strict=True))
            for stem, expected, true, told in split["images"]
            if None not in (expected, true)
        ]
        shown = [one for one in found if not one[4]]
        worst = sorted(shown, key=lambda one: one[2])[: max(1, len(shown) // 5)]
        shares = " | ".join(map(_share_inside, (shown, worst, [one for one in found if one[4]])))
        lines.append(
            f"| {n_train} | {name} | {len(splits)} | {level} | {np.mean(margins):.3f} | {shares} | "
            f"{np.nanmean(correlations):.2f} |"
        )
    return lines


def _share_inside(found: Sequence[tuple[str, int, float, bool, bool]]) -> str:
    """Write the share of images within the margin, and their number."""
    if not found:
        return ""
    images, splits, _, inside, _ = zip(*found, strict=True)
    values = np.array(inside, dtype=float)
    told = count(len(found), "image")
    if len(set(splits)) < 2:
        return f"{values.mean():.3f}, {told}"
    return f"{with_interval(values.mean(), bootstrap_interval(values, images, splits))}, {told}"


def _unlike(kinds: Sequence[str]) -> list[str]:
    """Leave out what says nothing of the image itself."""
    return [kind for kind in kinds if kind != "one class"]


def _rates(told: Sequence[Sequence[Sequence[str]]]) -> str:
    """Write the share of images with an alarm, for each number of training images."""
    return " | ".join(
        f"{np.mean([bool(_unlike(kinds)) for kinds in found]):.0%}".replace("%", " %") if found else ""
        for found in told
    )


def _most(told: Sequence[Sequence[Sequence[str]]]) -> str:
    """Name the kinds of alarms of half of the alarmed images or more."""
    alarmed = [kinds for found in told for kinds in map(_unlike, found) if kinds]
    kinds = sorted({kind for kinds in alarmed for kind in kinds})
    return ", ".join(kind for kind in kinds if 2 * sum(kind in kinds for kinds in alarmed) >= len(alarmed))


TABLES = {"coverage": coverage, "alarms": alarms}
