"""Time to train the default recipe and to segment one image, beside the pixel forest on the same images.

    python -m benchmarks.recipe_speed --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz
        [--sets ...] [--methods ...] [--train-sizes ...] [--seeds N] [--quick]

Methods take turns on every image, so that other work on the machine slows all of them alike. Ratios are of the
time on the clock, which all cores share, and of processor seconds. Written to recipe_speed.json.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import split, write_result
from benchmarks.segmentation import METHODS, QUICK, overrides_of, parse, parser_of, write_made_up
from segkit.benchmark import load_methods
from segkit.benchmark.machine import machine
from segkit.benchmark.methods import Method
from segkit.images import Dataset, load_pairs

RIVAL = "forest"
N_SEGMENTED = 5


def seconds_of(function: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """Wall and processor seconds, all threads together."""
    wall, processor = time.perf_counter(), time.process_time()
    function(*arguments)
    return {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}


def measure(
    dataset: Dataset, train: Iterable[str], test: Iterable[str], methods: Iterable[Method], seed: int
) -> dict[str, Any]:
    """Train every method once, then segment each test image with each of them in turn."""
    images = dict(zip(dataset.stems, dataset.images, strict=True))
    masks = dict(zip(dataset.stems, dataset.masks, strict=True))
    models = {method.name: method.build(seed) for method in methods}
    pairs = [images[stem] for stem in train], [masks[stem] for stem in train]
    fit = {name: seconds_of(model.fit, *pairs) for name, model in models.items()}
    rounds = [
        {name: seconds_of(model.predict, images[stem]) for name, model in models.items()} for stem in test
    ]
    ratios = {
        name: {
            kind: [times[name][kind] / times[RIVAL][kind] for times in rounds]
            for kind in ("wall", "processor")
        }
        for name in models
        if name != RIVAL
    }
    return {"shape": list(pairs[0][0].shape[:2]), "fit": fit, "predict": rounds, "predict_ratio": ratios}


def main() -> None:
    parser = parser_of(__doc__, methods=METHODS, train_sizes=[5])
    parser.set_defaults(seeds=1)
    arguments = parse(parser)
    arguments.methods = list(dict.fromkeys([*arguments.methods, RIVAL]))
    arguments.max_steps, arguments.device = 400, "cpu"
    records = []
    with tempfile.TemporaryDirectory() as temporary:
        options = overrides_of(arguments)
        if arguments.quick:
            arguments.data, arguments.sets, arguments.train_sizes = Path(temporary), ["made-up"], [2]
            write_made_up(arguments.data / "made-up")
            arguments.methods = ["segkit-no-networks", RIVAL]
            options = [option for option in QUICK if option.split(".")[0] in arguments.methods]
        methods = load_methods(arguments.methods, None, options)
        for name, n_train, seed in itertools.product(
            arguments.sets, arguments.train_sizes, range(arguments.seeds)
        ):
            folder = arguments.data / name
            dataset = load_pairs(folder / "images", folder / "masks")
            train, test = split(folder, seed, n_train)
            found = measure(dataset, train, test[:N_SEGMENTED], methods, seed)
            records.append({"set": name, "n_train": n_train, "seed": seed, **found})
            write_result(arguments.out / "recipe_speed.json", {"records": records, "machine": machine()})
            for method, seconds in found["fit"].items():
                ratios = found["predict_ratio"].get(method, {"wall": [1]})
                print(
                    f"{name} {method}: trained in {seconds['wall']:.0f} s, {np.median(ratios['wall']):.1f} x the forest's "
                    "prediction",
                    flush=True,
                )


if __name__ == "__main__":
    main()
