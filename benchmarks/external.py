"""Methods on a folder of sets that nothing was chosen on, by the protocol of the project: one result file, one table.

    python -m benchmarks.external DIR [--sets ...] [--methods ...] [--train-sizes ...] [--seeds N] [--set METHOD.KEY=VALUE]
        [--vgg19 VGG19.npz --squeezenet SQUEEZENET.npz] [--out FILE.json] [--quick]

DIR holds a folder for each set with images/, masks/ and, where images belong together, groups.csv. A third of each set is
tested on, seeds draw the training images, and every method has the same splits, as in `segkit benchmark`. Each run is kept
in the file when it is done, so that a cut run goes on where it stopped. With weights at hand, networks run as in
`benchmarks.segmentation`; without, on torchvision's.

results/external-458efc0.json was not made by this script. It holds the scores of six sets, measured at commit 458efc0 on
2026-11-23 with `segkit train` and `segkit predict` as they were, by the same protocol. Its forest is that of the tool that
measured.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import difference_of, markdown_table, mean_of, paired
from benchmarks.segmentation import (
    Results,
    measure,
    overrides_of,
    parser_of,
    result_path,
    scores_of,
    write_made_up,
)
from segkit.benchmark import load_methods
from segkit.errors import SegkitError
from segkit.evaluation.statistics import Comparison, compare, compare_pooled

METHODS = ("segkit-no-networks", "forest", "forest-centred")
# The default recipe and the pixel forest, by their names in one file or another.
_DEFAULT = ("segkit-no-networks", "none")
_FORESTS = {"forest": "forest", "forest-centred": "centred forest"}
_FIRST_LOOK = {
    "segkit-no-networks": "segkit, no networks (default)",
    "segkit-networks": "segkit, two networks",
    "segkit-paper": "recipe of the paper, VGG19 to conv3_4",
    "forest": "forest",
    "forest-centred": "centred forest",
}
_KINDS = {
    "axon_sem": "myelin and axons, scanning EM, three classes",
    "lung_cxr": "lungs, chest X-ray",
    "monuseg": "nuclei, H&E",
    "usiigaci_phase": "cells, phase contrast",
    "vnc_mito": "mitochondria, EM",
    "wbc_cellavision": "cytoplasm and nucleus of white cells, three classes",
}
Pair = tuple[str | None, str]
QUICK = [
    "segkit-no-networks.bank={name: scattering, J: 2, L: 3, tile: 32}",
    "segkit-no-networks.selection={n_features: 16, pixels: 400}",
    "segkit-no-networks.training.pixels=1000",
    "forest.training_pixels=1000",
]
Scores = dict[tuple[int, str], float]


def scores_by_set(result: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, Scores]]:
    """Give the mean IoU of each seed and image, by set and number of training images, then by method."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for run in result["runs"]:
        runs.setdefault(run["set"], []).append(run)
    found: dict[tuple[str, int], dict[str, Scores]] = {}
    for name, own in runs.items():
        for (method, n_train), scores in scores_of({"runs": own}).items():
            found.setdefault((name, n_train), {})[method] = scores
    return dict(sorted(found.items(), key=lambda entry: (entry[0][1], entry[0][0])))


def external(results: Iterable[Mapping[str, Any]]) -> str:
    """Make a table for each file: every method on every set, and the default recipe less the forest."""
    return "\n\n".join(_table(result) for result in results)


def first_look(results: Iterable[Mapping[str, Any]]) -> str:
    """Make the table of sets that were looked at once, before anything was chosen in view of them."""
    runs = [run | {"set": result["name"]} for result in results for run in result["runs"]]
    return _table({"runs": runs, "titles": _FIRST_LOOK, "kinds": _KINDS})


def _table(result: Mapping[str, Any]) -> str:
    by_set = scores_by_set(result)
    methods = list(dict.fromkeys(method for scores in by_set.values() for method in scores))
    titles = {method: result.get("titles", {}).get(method, method) for method in methods}
    default = next((method for method in _DEFAULT if method in methods), None)
    forests = {method: title for method, title in _FORESTS.items() if method in methods}
    pairs = [(default, forest) for forest in forests]
    rows = [_row(result, name, n_train, scores, methods, pairs) for (name, n_train), scores in by_set.items()]
    sizes = dict.fromkeys(n_train for _, n_train in by_set)
    rows += [_pooled_row(by_set, n_train, methods, pairs) for n_train in sizes]
    gaps = [f"default recipe less {title}" for title in forests.values()]
    lines = [markdown_table(["training images", "set", *titles.values(), *gaps, "splits"], rows)]
    for method, title in titles.items():
        if title.startswith("segkit"):
            lines += [f"{title}: {_behind(by_set, method, forest, of)}." for forest, of in forests.items()]
    return "\n".join([*lines, *([result["measured"]] if "measured" in result else [])])


def _row(
    result: Mapping[str, Any],
    name: str,
    n_train: int,
    scores: Mapping[str, Scores],
    methods: Iterable[str],
    pairs: Iterable[Pair],
) -> tuple[Any, ...]:
    """Give the means on a set, and the default recipe less each forest."""
    cells = [mean_of(scores[method]) if method in scores else "" for method in methods]
    gaps = [_gap(scores, *pair) for pair in pairs]
    kind = result.get("kinds", {}).get(name)
    seeds = {seed for found in scores.values() for seed, _ in found}
    told = ["" if gap is None else difference_of(gap) for gap in gaps]
    return (n_train, f"{name}: {kind}" if kind else name, *cells, *told, len(seeds))


def _behind(by_set: Mapping[tuple[str, int], Mapping[str, Scores]], method: str, forest: str, of: str) -> str:
    """Name the sets on which a method has a lower mean than a forest, and count differences that may be chance."""
    known = {key: gap for key, scores in by_set.items() if (gap := _gap(scores, method, forest)) is not None}
    found = [
        f"{name} with {n_train} training image{'s' * (n_train > 1)} ({gap.difference:+.3f})"
        for (name, n_train), gap in known.items()
        if gap.difference < 0
    ]
    n_doubtful = sum(gap.interval[0] <= 0 <= gap.interval[1] for gap in known.values())
    doubt = f"; {n_doubtful} of {len(known)} differences may be chance" if n_doubtful else ""
    return f"behind the {of} on {', '.join(found) or 'no set'}{doubt}"


def _pooled_row(
    by_set: Mapping[tuple[str, int], Mapping[str, Scores]],
    n_train: int,
    methods: Iterable[str],
    pairs: Iterable[Pair],
) -> tuple[Any, ...]:
    """Give the means over all sets, with equal weight."""
    own = [scores for (_, size), scores in by_set.items() if size == n_train]
    cells = [
        f"{np.mean([np.mean(list(scores[method].values())) for scores in own]):.3f}"
        if all(method in scores for scores in own)
        else ""
        for method in methods
    ]
    told = []
    for pair in pairs:
        found = [one for scores in own if (one := _paired(scores, *pair)) is not None]
        told.append(difference_of(compare_pooled(found)) if found else "")
    return (n_train, "all, with equal weight", *cells, *told, "")


def _paired(
    scores: Mapping[str, Scores], first: str | None, second: str
) -> tuple[list[float], list[float], list[str], list[int]] | None:
    """Pair the scores of two methods on the runs that both have."""
    return None if first is None else paired(scores.get(first, {}), scores.get(second, {}))


def _gap(scores: Mapping[str, Scores], first: str | None, second: str) -> Comparison | None:
    found = _paired(scores, first, second)
    return None if found is None else compare(*found)


def main() -> None:
    parser = parser_of(__doc__, methods=METHODS, train_sizes=[1, 5])
    parser.set_defaults(sets=None)
    parser.add_argument("folder", type=Path, nargs="?", metavar="DIR")
    parser.add_argument("--set", dest="options", action="append", default=[], metavar="METHOD.KEY=VALUE")
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    if arguments.folder is None and not arguments.quick:
        parser.error("DIR: needed, or --quick")
    try:
        with tempfile.TemporaryDirectory() as temporary:
            run(arguments, Path(temporary))
    except SegkitError as error:
        raise SystemExit(str(error)) from error


def run(arguments: argparse.Namespace, work: Path) -> None:
    """Measure what is missing, seed by seed, and print the table."""
    options = overrides_of(arguments) if arguments.vgg19 and arguments.squeezenet else []
    if arguments.quick:
        arguments.folder, arguments.methods = work / "sets", ["segkit-no-networks", "forest"]
        arguments.train_sizes, arguments.seeds, options = [1, 2], 1, list(QUICK)
        write_made_up(arguments.folder / "made-up")
    options += arguments.options
    sets = arguments.sets or sorted(path.parent.name for path in arguments.folder.glob("*/masks"))
    if not sets:
        raise SystemExit(
            f"{arguments.folder} holds no folder with images/ and masks/: give the folder of the sets"
        )
    path = result_path(arguments, f"external-{arguments.folder.resolve().name}.json")
    results = Results(path, path.stem)
    for n_seeds, name in product(range(1, arguments.seeds + 1), sets):
        results = Results(path, name, in_rows=True)
        arguments.seeds = n_seeds
        measure(arguments.folder / name, results, work / f"{name}-{n_seeds}", arguments, options)
    titles = {method.name: method.title for method in load_methods(arguments.methods, None, options)}
    print(external([{"runs": results.runs, "titles": titles}]))


if __name__ == "__main__":
    main()
