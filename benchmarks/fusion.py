"""Late fusion of networks beside the choice between two banks, on ten sets.

    python -m benchmarks.fusion --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz
        [--sets ...] [--methods late early] [--train-sizes 1 5] [--seeds N] [--quick]

"late" is VGG19 to conv3_4, SqueezeNet, and SqueezeNet at half size averaged over the symmetries of the square: a classifier
for each, with multiscale filters, their decisions averaged. "early" is one classifier of the same channels. The recipe that
chooses between two banks (segkit-networks) is not run again: its runs on the same splits are in segmentation-SET.json and
first-look/SET.json. Runs are kept in fusion-SET.json as they are done, seed by seed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import RESULTS, difference_of, markdown_table, paired
from benchmarks.segmentation import (
    NETWORKS,
    SETS,
    VGG_ALONE,
    Results,
    bank_option,
    list_last,
    measure,
    parse,
    parser_of,
    scores_of,
    write_made_up,
)
from segkit.errors import SegkitError
from segkit.evaluation.statistics import compare, compare_pooled

ALL_SETS = (*SETS, "monuseg", "usiigaci_phase", "lung_cxr", "axon_sem", "wbc_cellavision", "vnc_mito")
# Images at the end of a set that is one volume: neighbouring slices look alike.
VOLUMES = {"vnc_mito": 7}
LABELS = {
    "axon_sem": {0: "background", 1: "myelin", 2: "axon"},
    "wbc_cellavision": {0: "background", 1: "cytoplasm", 2: "nucleus"},
}
CHOICE = "segkit-networks"
TITLES = {"late": "late fusion", "early": "early fusion"}

Scores = Mapping[tuple[str, int], Mapping[tuple[int, str], float]]


def overrides_of(arguments: argparse.Namespace) -> list[str]:
    """Options of both methods."""
    vgg, full, half = NETWORKS
    networks = [{**vgg, "layers": ["conv1_1"]}, full] if arguments.quick else [*VGG_ALONE, full, half]
    small = ["selection={n_features: 16, pixels: 400}", "training.pixels=1000"] if arguments.quick else []
    option = bank_option(arguments, networks)
    if arguments.quick:
        option = json.dumps(_with_random_weights(json.loads(option.removeprefix("bank="))))
        option = f"bank={option}"
    return [
        f"{method}.{setting}"
        for method in arguments.methods
        for setting in ("kind=segkit", f"title={TITLES[method]}", option, f"training.fusion={method}", *small)
    ]


def _with_random_weights(bank: dict[str, Any]) -> dict[str, Any]:
    banks = [part | ({"weights": "random"} if "weights" in part else {}) for part in bank["banks"]]
    return bank | {"banks": banks}


def fusion(results: Iterable[Mapping[str, Any]], known: Path = RESULTS) -> str:
    """Make the table: late fusion less the choice between banks, and less early fusion, on each set and on all.

    Parameters
    ----------
    results : iterable of mapping
        What fusion-SET.json holds, of each set.
    known : Path
        Folder of the runs of the choice between banks.
    """
    runs = {
        name: runs_of(result, name, known)
        for result in results
        for name in [result["name"].removeprefix("fusion-")]
    }
    scores = {name: scores_of({"runs": of_set}) for name, of_set in runs.items()}
    sizes = sorted({n_train for of_set in scores.values() for method, n_train in of_set if method == "late"})
    others = {CHOICE: "the choice of banks"}
    if any(method == "early" for of_set in scores.values() for method, _ in of_set):
        others["early"] = "early fusion"
    rows = []
    for n_train in sizes:
        pairs: dict[str, dict[str, Any]] = {other: {} for other in others}
        for name, of_set in scores.items():
            late = of_set.get(("late", n_train))
            if not late:
                continue
            cells = []
            for other, found in pairs.items():
                pair = paired(late, of_set.get((other, n_train), {}))
                if pair is not None:
                    found[name] = pair
                cells.append("" if pair is None else difference_of(compare(*pair)))
            n_seeds = len({seed for seed, _ in late})
            rows.append((n_train, name, f"{np.mean(list(late.values())):.3f}", *cells, n_seeds))
        pooled = [
            difference_of(compare_pooled(list(found.values()))) if found else "" for found in pairs.values()
        ]
        rows.append((n_train, "all, with equal weight", "", *pooled, ""))
        rows += _left_out(n_train, pairs)
    gaps = [f"less {title}" for title in others.values()]
    header = ["training images", "set", "late fusion", *gaps, "splits"]
    return markdown_table(header, rows)


def _left_out(n_train: int, pairs: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Count the sets on which the choice that the other sets make, late fusion or the choice of banks, gains."""
    gains = {name: compare(*pair).difference for name, pair in pairs[CHOICE].items()}
    if len(gains) < 2:
        return []
    total = sum(gains.values())
    chosen = [gain if total > gain else 0.0 for gain in gains.values()]
    told = f"{np.mean(chosen):+.3f}; {sum(gain > 0 for gain in chosen)} of {len(chosen)} sets gain"
    return [(n_train, "chosen by the other sets", "", told, *([""] * len(pairs)))]


def runs_of(result: Mapping[str, Any], name: str, known: Path) -> list[dict[str, Any]]:
    """Give the runs of a set, and those of the choice between banks on it."""
    files = [known / f"segmentation-{name}.json", known / "first-look" / f"{name}.json"]
    others = [run for file in files if file.exists() for run in Results(file, name).runs]
    return [*result["runs"], *(run for run in others if run["method"] == CHOICE)]


def main() -> None:
    parser = parser_of(__doc__, methods=("late",), train_sizes=[1, 5])
    parser.set_defaults(sets=ALL_SETS)
    arguments = parse(parser)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            if arguments.quick:
                arguments.data, arguments.sets = Path(temporary), ["quick"]
                arguments.methods, arguments.train_sizes, arguments.seeds = list(TITLES), [2], 1
                write_made_up(Path(temporary) / "quick")
            for n_seeds in range(1, arguments.seeds + 1):
                for name in arguments.sets:
                    last = VOLUMES.get(name)
                    folder, work = arguments.data / name, Path(temporary) / "work" / f"{name}-{n_seeds}"
                    test = None if last is None else list_last(folder, last, Path(temporary) / f"{name}.txt")
                    kept = Results(arguments.out / f"fusion-{name}.json", f"fusion-{name}")
                    own = argparse.Namespace(**vars(arguments) | {"seeds": n_seeds})
                    measure(folder, kept, work, own, overrides_of(arguments), test, LABELS.get(name))
    except SegkitError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
