"""What each part of the default recipe is worth: one change at a time, on the same splits.

    python -m benchmarks.ablations --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz
        [--sets ...] [--methods ...] [--train-sizes ...] [--seeds N] [--quick]

Each variant is a recipe with one part changed: that of networks (two banks to choose from), that of the first of these
banks alone (VGG19, SqueezeNet and multiscale filters), that without networks, or this one without its elongated filters:
scattering, round (multiscale) filters and the distance from the centre. Runs are kept in ablations-SET.json as they are
done, in the form of segmentation-SET.json, where the committed ones of the default recipes are; tables with paired
intervals, of each set and of all together, are written to ablations.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, difference_of, markdown_table, paired
from benchmarks.segmentation import (
    NETWORKS,
    SETS,
    VGG_ALONE,
    Results,
    bank_option,
    measure,
    parse,
    parser_of,
    scores_of,
    write_made_up,
)
from segkit.errors import SegkitError
from segkit.evaluation.statistics import compare, compare_pooled

CHOICE, FIRST, NO_NETWORKS, ROUND = "segkit-networks", "first", "segkit-no-networks", "round"
VARIANTS = {
    CHOICE: {
        FIRST: "the first bank, whatever held-out images say",
        "vgg": "the second bank: VGG19 to conv3_4, no SqueezeNet",
    },
    FIRST: {
        "set": "first bank; channels centred on the whole set, not on each image",
        "top256": "first bank; 256 channels instead of 1,024",
        "top2048": "first bank; 2,048 channels instead of 1,024",
        "linear": "first bank; no Gaussians, linear kernels only",
        "ccm": "first bank; 512 channels chosen by conditional covariance minimisation",
        "share": "first bank; threshold of the training images, held out in turn, alone",
        "iou": "first bank; threshold of the highest held-out IoU",
        "zero": "first bank; threshold at the sign of the decision",
        "all-regions": "first bank; every region kept, however small",
        "fixed": "first bank; penalty fixed at lambda = 1e-3",
        "squeezenet": "first bank; no VGG19",
        "deeper": "first bank; VGG19 to conv3_4",
        "no-half": "first bank; no SqueezeNet at half size",
        "upright": "first bank; SqueezeNet at half size not averaged over symmetries",
        "averaged": "first bank; SqueezeNet at full size averaged over symmetries too",
        "quarter": "first bank; SqueezeNet at a quarter of the size besides, averaged over symmetries",
        "rff": "first bank; Gaussian mixture in random features on the 128 channels of CCM",
    },
    NO_NETWORKS: {
        ROUND: "no networks; no elongated filters, round ones only",
        "no-round": "no networks; no round filters, elongated ones only",
    },
    ROUND: {
        "scales": "round filters; scattering at J = 1, 2 and 3 instead of 3 alone",
        "wide": "round filters; scattering at J = 3 and 4 instead of 3 alone",
        "each-angle": "round filters; a channel for each angle, not averaged over turns",
        "eight-angles": "round filters; eight angles instead of four",
        "first-order": "round filters; scattering of the first order only",
        "no-position": "round filters; no distance from the picture's centre",
        "no-multiscale": "no multiscale filters, round or elongated",
        "no-scattering": "round filters; no scattering",
        "hinge": "round filters; hinge instead of squared hinge",
        "balanced": "round filters; both classes weigh the same",
        "ccm64": "round filters; 64 channels chosen by conditional covariance minimisation",
        "gaussian": "round filters; Gaussian mixture in random features alone, weights by MMD",
        "power": "round filters; Gaussian mixture alone, weights by the power of the test",
        "alignment": "round filters; Gaussian mixture alone, weights by centred alignment",
        "laplacian": "round filters; Laplacian mixture in random features alone, weights by MMD",
    },
}
BASES = {method: base for base, titles in VARIANTS.items() for method in titles}
TITLES = {method: title for titles in VARIANTS.values() for method, title in titles.items()}
SCATTERING_OPTIONS = "J: 3, L: 4, angles: averaged"
QUICK_BANK = "bank={name: multiscale, sigma_max: 4}"


def overrides_of(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Options of each variant."""
    bank = QUICK_BANK if arguments.quick else bank_option(arguments, NETWORKS)
    vgg, full, half = NETWORKS
    [whole_vgg] = VGG_ALONE
    round_bank = with_scattering(SCATTERING_OPTIONS)
    return {
        FIRST: [bank],
        "set": [bank, "training.normalization=set"],
        "top256": [bank, "selection.n_features=256"],
        "top2048": [bank, "selection.n_features=2048"],
        "linear": [bank, "kernel.family=linear"],
        "ccm": [bank, "selection={method: ccm, n_features: 512, pixels: 3000}"],
        "share": [bank, "training.threshold=quantile"],
        "iou": [bank, "training.threshold=iou"],
        "zero": [bank, "training.threshold=zero"],
        "all-regions": [bank, "training.smallest_region=0"],
        "fixed": [bank, "svm.lambdas=[1.0e-3]"],
        "vgg": [bank_option(arguments, [whole_vgg])],
        "squeezenet": [bank_option(arguments, [full, half])],
        "deeper": [bank_option(arguments, [whole_vgg, full, half])],
        "no-half": [bank_option(arguments, [vgg, full])],
        "upright": [bank_option(arguments, [vgg, full, {**full, "pyramid": [0.5]}])],
        "averaged": [bank_option(arguments, [vgg, {**full, "orbit": "d4"}, half])],
        "quarter": [bank_option(arguments, [vgg, full, {**half, "pyramid": [0.5, 0.25]}])],
        "rff": [
            bank,
            "selection={method: ccm, n_features: 128, pixels: 3000}",
            "kernel.family=gaussian",
            "svm.lambdas=[1.0e-2, 1.0e-3, 1.0e-4]",
        ],
        ROUND: [round_bank],
        "no-round": [with_scattering(SCATTERING_OPTIONS, others=["elongated", "position"])],
        "scales": [with_scattering("J: [1, 2, 3], L: 4, angles: averaged")],
        "wide": [with_scattering("J: [3, 4], L: 4, angles: averaged")],
        "each-angle": [with_scattering("J: 3, L: 4")],
        "eight-angles": [with_scattering("J: 3, L: 8, angles: averaged")],
        "first-order": [with_scattering("J: 3, L: 4, max_order: 1, angles: averaged")],
        "no-position": [with_scattering(SCATTERING_OPTIONS, others=["multiscale"])],
        "no-multiscale": [with_scattering(SCATTERING_OPTIONS, others=["position"])],
        "no-scattering": ["bank={name: stacked, banks: [{name: multiscale}, {name: position}]}"],
        "hinge": [round_bank, "svm.loss=hinge"],
        "balanced": [round_bank, "svm.class_weight=balanced"],
        "ccm64": [round_bank, "selection={method: ccm, n_features: 64, pixels: 3000}"],
        "gaussian": [round_bank, "kernel.family=gaussian"],
        "power": [round_bank, "kernel={family: gaussian, criterion: power}"],
        "alignment": [round_bank, "kernel={family: gaussian, criterion: centered_alignment}"],
        "laplacian": [round_bank, "kernel.family=laplacian"],
    }


def with_scattering(options: str, others: Iterable[str] = ("multiscale", "position")) -> str:
    """Bank of scattering with these options and others, as an option."""
    banks = [f"scattering, {options}", *others]
    return f"bank={{name: stacked, banks: [{', '.join(f'{{name: {bank}}}' for bank in banks)}]}}"


def tables(results: dict[str, dict[str, Any]]) -> str:
    """Difference of each variant to its recipe with its paired interval, on each set and on all: a table for each size."""
    scores = {name: scores_of(result) for name, result in results.items()}
    sizes = sorted({n_train for of_set in scores.values() for _, n_train in of_set})
    parts = []
    for n_train in sizes:
        rows = []
        for method, title in TITLES.items():
            cells, pairs = [], []
            for of_set in scores.values():
                pair = paired(*(of_set.get((which, n_train), {}) for which in (method, BASES[method])))
                if pair is None:
                    cells.append("")
                    continue
                pairs.append(pair)
                found = compare(*pair)
                cells.append(f"{difference_of(found)}; {found.n_seeds[0]}")
            if pairs:
                rows.append([title, *cells, difference_of(compare_pooled(pairs))])
        header = ["variant less recipe, mean IoU", *scores, "sets with equal weight"]
        parts.append(
            f"## {n_train} training image{'s' if n_train > 1 else ''}\n\n{markdown_table(header, rows)}"
        )
    parts.append(
        "Differences with 95 % bootstrap intervals over seeds and images (of one seed, over images only), and numbers of "
        "seeds, each the same splits for variant and recipe. Digests of the code that made the runs: recipes "
        f"{_sources(results, BASES.values())}; variants {_sources(results, TITLES)}.\n"
    )
    return "\n".join(parts)


def _sources(results: dict[str, dict[str, Any]], methods: Iterable[str]) -> str:
    runs = [run for result in results.values() for run in result["runs"] if run["method"] in set(methods)]
    return ", ".join(sorted({run.get("sources", "unknown") for run in runs}))


def with_base(path: Path) -> dict[str, Any]:
    """Give the runs of a result file of variants, and those of the recipes on the same set."""
    name = path.stem.removeprefix("ablations-")
    files = [RESULTS / f"segmentation-{name}.json", path]
    runs = [run for file in files for run in Results(file, name).runs]
    return {"runs": [run for run in runs if run["method"] in (*VARIANTS, *TITLES)]}


def main() -> None:
    parser = parser_of(__doc__, methods=tuple(TITLES), train_sizes=[1, 5])
    arguments = parse(parser)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            if arguments.quick:
                arguments.data, arguments.sets = Path(temporary), ["quick"]
                arguments.methods, arguments.train_sizes, arguments.seeds = [FIRST, "set", "zero"], [2], 1
                write_made_up(Path(temporary) / "quick")
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
        for name in (arguments.sets if arguments.quick else dict.fromkeys([*SETS, *arguments.sets]))
        if (path := arguments.out / f"ablations-{name}.json").exists()
    }
    page = arguments.out / f"ablations{'-quick' if arguments.quick else ''}.md"
    page.write_text(tables(results), encoding="utf-8")


if __name__ == "__main__":
    main()
