"""Methods trained on a few images of a set: segkit's recipes and their variants, pixel forests, FCN and U-Net.

    python -m benchmarks segmentation --data DATA --weights WEIGHTS [--sets ...] [--methods ...] [--train-sizes ...]
        [--seeds N] [--set METHOD.KEY=VALUE] [--work WORK]

DATA holds a folder for each set with images/, masks/ and, where images belong together, groups.csv. The runs are those of
`segkit benchmark`: a third of each set is tested on, seeds draw the training images, and every method has the same splits.

Networks train on crops of 160 pixels for at most --max-steps steps; a run that was stopped by this budget is marked.
fcn-best, fcn-vgg19-best, unet-best and smp choose between two learning rates on held-out pixels, and are trained anew on
all pixels for as many steps as were best: give them more steps, so that validation stops them. That takes one to three
hours on a core; with --work, a run that was cut goes on from its last validation, and its seconds are those since then.
smp-1200 is smp with the crops and, in its three trainings, the most steps of `configs/tuned.yaml`.

A variant (`VARIANTS`) is a recipe with one part changed: that of the first bank of two networks, that without networks, or
the latter without its elongated filters.

A row holds of each test image the pixels by truth and prediction, row by row: every score follows from them. It also holds
the object IoU that the model expected of an image, and its 80 % interval where the model gave one.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import Row, Study
from segkit._common.device import device
from segkit.benchmark import Benchmark, few_shot_split, load_methods
from segkit.cli.phantom import make_demo_set
from segkit.config.read import read_options, shipped
from segkit.evaluation.metrics import dice_of, iou_of
from segkit.images import write_image, write_mask

DEVELOPMENT = ("kvasir_seg_256", "dsb2018_stained", "drive", "isbi2012_em")
METHODS = ("segkit-networks", "segkit-no-networks", "forest")
# Class names of sets with more than one kind of object.
LABELS = {
    "axon_sem": {0: "background", 1: "myelin", 2: "axon"},
    "wbc_cellavision": {0: "background", 1: "cytoplasm", 2: "nucleus"},
}
# The banks to choose from, each of networks and, behind them, the filters of pixel classifiers.
(*NETWORKS, FILTERS), (*VGG_ALONE, _) = (
    bank["banks"] for bank in read_options(shipped("two-networks"))["bank"]
)
_SCATTERING = "scattering, J: 3, L: 4, angles: averaged"
QUICK = [
    "segkit-no-networks.bank={name: scattering, J: 2, L: 3}",
    "segkit-no-networks.selection={n_features: 16, pixels: 400}",
    "segkit-no-networks.training.pixels=1000",
    "forest.training_pixels=1000",
]
QUICK_UNET = "unet={kind: unet, max_steps: 2, n_filters: 2, depth: 2, crop: 32}"

# Mean IoU of each seed and image, by method and number of training images.
Scores = Mapping[tuple[str, int], Mapping[tuple[int, str], float]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", default=METHODS, help="methods and variants")
    parser.add_argument("--train-sizes", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--max-steps", type=int, default=400, help="of a network")
    parser.add_argument("--device", default="auto", help="of networks and wavelets")
    parser.add_argument("--work", type=Path, help="folder that keeps what a cut run has done")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="METHOD.KEY=VALUE")


def run(study: Study) -> None:
    options = study.options
    place = nullcontext(options.work) if options.work else tempfile.TemporaryDirectory()
    with device(options.device), place as work:
        work = Path(work)
        work.mkdir(parents=True, exist_ok=True)
        if study.quick:
            write_made_up(work / "made-up")
            methods = ["round", "unet"]
            settings = ["round.kind=segkit", "round.bank.name=position", QUICK_UNET]
            measure(study, work / "made-up", work / "work", methods, settings, [2], 1)
            return
        settings = [
            f"{method}.{option}" for method in options.methods for option in options_of(method, study)
        ]
        for name in study.sets or DEVELOPMENT:
            sizes, n_seeds = options.train_sizes, study.seeds or 5
            settings_of_all = settings + options.settings
            measure(study, study.folder(name), work / name, options.methods, settings_of_all, sizes, n_seeds)


def measure(
    study: Study,
    folder: Path,
    work: Path,
    methods: list[str],
    settings: list[str],
    sizes: list[int],
    n_seeds: int,
) -> None:
    """Run what is missing of one set."""
    groups = folder / "groups.csv"
    benchmark = Benchmark(
        folder / "images",
        folder / "masks",
        work,
        load_methods(methods, None, settings),
        sizes,
        range(n_seeds),
        groups=groups if groups.exists() else None,
        labels=LABELS.get(folder.name),
    )
    for unit in benchmark.units:
        where = {"set": folder.name, "method": unit.method.name, "n_train": unit.n_train, "seed": unit.seed}
        try:
            study.row(where, lambda unit=unit: _figures(benchmark.outcome(unit)), part=folder.name)
        except FailedRun as failed:
            print(*where.values(), f"failed: {failed}", flush=True)


class FailedRun(Exception):  # noqa: N818
    """A method that ended in an error."""


def _figures(outcome: dict[str, Any]) -> dict[str, Any]:
    if "error" in outcome:
        raise FailedRun(outcome["error"])
    unit, counts, expected = outcome["unit"], {}, {}
    for record in outcome["records"]:
        counts[record["image"]] = np.ravel(record["confusion"]).tolist()
        iou = record["expected_object_iou"]
        if iou is not None:
            expected[record["image"]] = [round(value, 4) for value in (iou, *(record["interval_80"] or ()))]
    kept = ("fit_seconds", "predict_seconds", "peak_memory_mib", "budget_limited")
    figures = {name: unit[name] for name in kept if unit[name] is not None}
    if unit["explain"] is not None:
        figures["bank"] = unit["explain"]["bank"]
    mean = np.mean([score_of(found)[0] for found in counts.values()])
    return {"mean_iou": round(float(mean), 5), **figures, "images": counts, "expected": expected}


def score_of(counts: Iterable[int]) -> tuple[float, np.ndarray, np.ndarray]:
    """Compute the mean IoU of an image, and IoU and Dice of each class, from its pixels by truth and prediction."""
    return _score_of(tuple(counts))


@cache
def _score_of(counts: tuple[int, ...]) -> tuple[float, np.ndarray, np.ndarray]:
    pixels = np.array(counts)
    n_classes = math.isqrt(pixels.size)
    pixels = pixels.reshape(n_classes, n_classes)
    return float(np.nanmean(iou_of(pixels))), iou_of(pixels), dice_of(pixels)


def scores_of(rows: Iterable[Row]) -> dict[str, Scores]:
    """Arrange mean IoU by set, then by method and number of training images, then by seed and image."""
    found: dict[str, dict[tuple[str, int], dict[tuple[int, str], float]]] = {}
    for row in rows:
        where = row["where"]
        own = found.setdefault(where["set"], {}).setdefault((where["method"], where["n_train"]), {})
        for image, counts in row["figures"]["images"].items():
            own[where["seed"], image] = score_of(counts)[0]
    return found


def options_of(method: str, study: Study) -> list[str]:
    """Return the options of a method: weights at hand, and networks that a processor can train."""
    if method in VARIANTS:
        return ["kind=segkit", *VARIANTS[method](study)]
    return _METHODS[method](study) if method in _METHODS else []


def bank_option(study: Study, *choice: Iterable[dict[str, Any]]) -> str:
    """Write a bank of networks beside the filters of pixel classifiers, or several to choose from, as an option."""
    banks = [
        {
            "name": "stacked",
            "banks": [
                *(
                    {**net, "weights": study.weight(net["name"]), "preprocessing": "caffe"}
                    for net in networks
                ),
                FILTERS,
            ],
        }
        for networks in choice
    ]
    return f"bank={json.dumps(banks[0] if len(banks) == 1 else banks)}"


def _vgg_bank(study: Study) -> list[str]:
    return ["bank.name=vgg19", f"bank.weights={study.weight('vgg19')}", "bank.preprocessing=caffe"]


def _net(study: Study, name: str) -> list[str]:
    return [f"weights={study.weight(name)}", f"backbone={name}", "preprocessing=caffe"]


def _budget(study: Study) -> list[str]:
    options = study.options
    return ["crop=160", f"max_steps={options.max_steps}", f"device={options.device}"]


_BEST = ["learning_rate=[0.0001, 0.001]", "retrain=true"]
_METHODS = {
    "segkit-tuned": lambda study: [f"bank.0.banks.0.weights={study.weight('mobilenet_v2')}"],
    "segkit-tuned-long": lambda study: [f"bank.0.banks.0.weights={study.weight('mobilenet_v2')}"],
    "segkit-networks": lambda study: [bank_option(study, NETWORKS, VGG_ALONE)],
    "segkit-paper": lambda study: [*_vgg_bank(study), "title=recipe of the paper (VGG19)"],
    "segkit-paper-as-printed": lambda study: [
        *_vgg_bank(study),
        "title=recipe of the paper as printed (VGG19)",
    ],
    "convpaint": _vgg_bank,
    "convpaint-m": _vgg_bank,
    "convpaint-centred": _vgg_bank,
    "forest-convpaint": _vgg_bank,
    "fcn": lambda study: [*_net(study, "squeezenet1_0"), "n_hidden=512", *_budget(study)],
    "fcn-vgg19": lambda study: ["kind=fcn", *_net(study, "vgg19"), "n_hidden=512", *_budget(study)],
    "fcn-scratch": lambda study: ["backbone=squeezenet1_0", "n_hidden=512", *_budget(study)],
    "unet": lambda study: ["n_filters=16", *_budget(study)],
    "fcn-best": lambda study: [
        "kind=fcn",
        *_net(study, "squeezenet1_0"),
        "n_hidden=512",
        *_BEST,
        *_budget(study),
    ],
    "fcn-vgg19-best": lambda study: [
        "kind=fcn",
        *_net(study, "vgg19"),
        "n_hidden=512",
        *_BEST,
        *_budget(study),
    ],
    "unet-best": lambda study: ["kind=unet", "n_filters=32", *_BEST, *_budget(study)],
    "smp": lambda study: [f"weights={study.weight('mobilenet_v2')}", *_BEST, *_budget(study)],
    "smp-1200": lambda study: [
        "kind=unet",
        "encoder=mobilenet_v2",
        f"weights={study.weight('mobilenet_v2')}",
        *_BEST,
        "crop=192",
        "max_steps=1200",
        f"device={study.options.device}",
    ],
}


def _stacked(*banks: str) -> str:
    return f"bank={{name: stacked, banks: [{', '.join(f'{{name: {bank}}}' for bank in banks)}]}}"


# Module sequences of the paper of U-statistics, section 7.2.2: two equal layers of three scales and four directions.
MODULES = {
    f"modules-{name}": {"name": "modules", "modules": 2 * [{"n_scales": 3, "n_angles": 4, **layer}]}
    for name, layer in {
        "morlet": {},
        "gabor": {"atoms": "gabor"},
        "shearlet": {"atoms": "shearlet"},
        "relu": {"nonlinearity": "relu"},
        "tanh": {"nonlinearity": "tanh"},
        "subsample": {"factor": 2},
        "average": {"pooling": "average", "factor": 2},
        "max": {"pooling": "max", "factor": 2},
    }.items()
}
# Variants of the first bank of two networks ("first"), and of the recipe without elongated filters ("round").
VARIANTS = {
    "first": lambda study: [bank_option(study, NETWORKS)],
    "vgg": lambda study: [bank_option(study, VGG_ALONE)],
    "set": lambda study: [bank_option(study, NETWORKS), "bank.normalization=set"],
    "linear": lambda study: [bank_option(study, NETWORKS), "kernel.family=linear"],
    "iou": lambda study: [bank_option(study, NETWORKS), "training.threshold=iou"],
    "zero": lambda study: [bank_option(study, NETWORKS), "training.threshold=zero"],
    "squeezenet": lambda study: [bank_option(study, NETWORKS[1:])],
    "no-half": lambda study: [bank_option(study, NETWORKS[:2])],
    "round": lambda _: [_stacked(_SCATTERING, "multiscale", "position")],
    "no-position": lambda _: [_stacked(_SCATTERING, "multiscale")],
    "no-multiscale": lambda _: [_stacked(_SCATTERING, "position")],
    "no-scattering": lambda _: [_stacked("multiscale", "position")],
    **{name: lambda _, bank=bank: [f"bank={json.dumps(bank)}"] for name, bank in MODULES.items()},
}


def split(folder: Path, seed: int, n_train: int) -> tuple[list[str], list[str]]:
    """Return the stems to train on and those to test on, as `segkit benchmark` draws them."""
    found = few_shot_split([path.stem for path in (folder / "images").iterdir()], n_train, seed)
    return list(found.train), list(found.test)


def write_made_up(folder: Path, n_images: int = 4, shape: tuple[int, int] = (64, 96)) -> None:
    """Write pictures and their masks, for a quick run."""
    for index, (image, mask) in enumerate(zip(*make_demo_set(n_images, shape=shape), strict=True)):
        write_image(folder / "images" / f"{index}.png", image)
        write_mask(folder / "masks" / f"{index}.png", 255 * mask)
