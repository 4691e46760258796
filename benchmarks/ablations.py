"""What each part of the default recipe is worth: one change at a time, on the same splits.

    python -m benchmarks.ablations --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz
        [--sets ...] [--methods ...] [--train-sizes ...] [--seeds N] [--quick]

Each variant is the default recipe (VGG19 and SqueezeNet at two scales, and multiscale filters) with one part
changed. Runs are kept in ablations-SET.json as they are done, in the form of segmentation-SET.json, where the
committed ones of the default recipe are; the table with paired intervals is written to ablations.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.segmentation import SETS, Results, measure, parser_of, scores_of, stacked_bank, write_made_up
from benchmarks.tables.common import RESULTS
from segkit.errors import SegkitError
from segkit.statistics import compare

BASE = "segkit-vgg"
TITLES = {
    "set": "channels centred on the whole set, not on each image",
    "top256": "256 channels instead of 1,024",
    "top4096": "4,096 channels instead of 1,024",
    "linear": "no Gaussians, linear kernels only",
    "ccm": "512 channels chosen by conditional covariance minimisation",
    "iou": "threshold of the highest held-out IoU",
    "zero": "threshold at the sign of the decision",
    "all-regions": "every region kept, however small",
    "fixed": "penalty fixed at lambda = 1e-3",
    "vgg": "VGG19 at full size only",
    "squeezenet": "SqueezeNet at two scales only",
    "no-half": "networks at full size only",
    "rff": "Gaussian mixture in random features on the 128 channels of CCM",
    "d4": "features averaged over the eight symmetries of the square",
}
QUICK_BANK = "bank={name: multiscale, sigma_max: 4}"


def overrides_of(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Options of each variant."""
    bank = QUICK_BANK if arguments.quick else stacked_bank(arguments)
    return {
        BASE: [bank],
        "set": [bank, "training.normalization=set"],
        "top256": [bank, "selection.n_features=256"],
        "top4096": [bank, "selection.n_features=4096"],
        "linear": [bank, "kernel.family=linear"],
        "ccm": [bank, "selection={method: ccm, n_features: 512, pixels: 3000}"],
        "iou": [bank, "training.threshold=iou"],
        "zero": [bank, "training.threshold=zero"],
        "all-regions": [bank, "training.smallest_region=0"],
        "fixed": [bank, "svm.lambdas=[1.0e-3]"],
        "vgg": ["bank.name=vgg19", f"bank.weights={arguments.vgg19}", "bank.preprocessing=caffe"],
        "squeezenet": [stacked_bank(arguments, networks=("squeezenet1_0",))],
        "no-half": [stacked_bank(arguments, pyramid="[1]")],
        "rff": [
            bank,
            "selection={method: ccm, n_features: 128, pixels: 3000}",
            "kernel.family=gaussian",
            "svm.lambdas=[1.0e-2, 1.0e-3, 1.0e-4]",
        ],
        "d4": [bank, "bank.orbit=d4"],
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """Difference of each variant to the default, over images, with its paired interval; a row for each."""
    lines = [
        "| variant | set | n | mean IoU | default | difference (95 % interval) | images | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        scores = scores_of(result)
        for (method, n_train), mine in scores.items():
            base = scores.get((BASE, n_train), {})
            shared = sorted(set(mine) & set(base))
            if method == BASE or not shared:
                continue
            values, others = ([run[key] for key in shared] for run in (mine, base))
            found = compare(values, others, [image for _, image in shared])
            lines.append(
                f"| {TITLES[method]} | {name} | {n_train} | {np.mean(values):.3f} | {np.mean(others):.3f} | "
                f"{found.difference:+.3f} ({found.interval[0]:+.3f} to {found.interval[1]:+.3f}) | "
                f"{found.n_images} | {len({seed for seed, _ in shared})} |"
            )
    return "\n".join(lines) + "\n"


def with_base(path: Path) -> dict[str, Any]:
    """Give the runs of a result file of variants, and those of the default recipe on the same set."""
    name = path.stem.removeprefix("ablations-")
    files = [RESULTS / f"segmentation-{name}.json", path]
    runs = [run for file in files for run in Results(file, name).runs]
    return {"runs": [run for run in runs if run["method"] in (BASE, *TITLES)]}


def main() -> None:
    parser = parser_of(__doc__, methods=tuple(TITLES), train_sizes=[1, 5])
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            if arguments.quick:
                arguments.data, arguments.sets = Path(temporary), ["made-up"]
                arguments.methods, arguments.train_sizes, arguments.seeds = [BASE, "set", "zero"], [2], 1
                write_made_up(Path(temporary) / "made-up")
            for name in arguments.sets:
                kept = Results(arguments.out / f"ablations-{name}.json", f"ablations-{name}")
                overrides = [
                    f"{method}.{option}"
                    for method, options in overrides_of(arguments).items()
                    if method in arguments.methods
                    for option in ["kind=segkit", *options]
                ]
                measure(arguments.data / name, kept, Path(temporary) / "work" / name, arguments, overrides)
    except SegkitError as error:
        raise SystemExit(str(error)) from error
    results = {
        name: with_base(path)
        for name in dict.fromkeys([*SETS, *arguments.sets])
        if (path := arguments.out / f"ablations-{name}.json").exists()
    }
    (arguments.out / "ablations.md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
