"""Tables that sum up: all sets in one, the headline of the source paper, and how little was run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, mean_of
from benchmarks.external import KINDS
from benchmarks.scores import OBJECTS, TITLES, Gap, Scores, by_set_of, gap_of, sizes_of
from benchmarks.segmentation import scores_of

DEFAULT, FOREST, PAPER, FCN, UNET = "segkit-no-networks", "forest", "segkit-paper", "fcn-vgg19", "smp"
OURS = ("segkit-networks", DEFAULT)
SHOWN = {
    DEFAULT: "segkit, no networks (default)",
    "segkit-networks": "segkit, two networks",
    FOREST: "forest",
}
RECIPES = (PAPER, *OURS)
SHORT = {FCN: "pre-trained FCN-8s", FOREST: "pixel forest"}
NETWORKS = tuple(method for method in TITLES if method.startswith(("fcn", "unet", "smp")))
# Files of results by the start of their name; those of the first look are named by the set alone.
_STARTS = {"segmentation-": "development", "external-": "external"}
_FIRST_LOOK = "first look"
_DEVICES = {"cpu": "a processor", "cuda": "a graphics card"}
# Names that the methods have in the file of external sets.
_NAMES = {"none": DEFAULT, "two": "segkit-networks"}


def sixteen(results: Iterable[Mapping[str, Any]]) -> str:
    """Make a table for each number of training images: every set, and the means of each kind of sets."""
    by_kind, shows = _by_kind(results)
    header = ("set<br>kind, splits", "default less forest", *SHOWN.values())
    parts = []
    for n_train in (1, 5):
        rows = []
        for kind, of_kind in by_kind.items():
            # the splits that all methods of the table ran, so that a row compares like with like
            by_set = _shared(of_kind, SHOWN, n_train)
            for name, scores in by_set.items():
                gap = str(gap_of({name: scores}, DEFAULT, FOREST, n_train))
                cells = [gap, *(mean_of(scores[method, n_train]) for method in SHOWN)]
                n_splits = _n_draws({name: scores}, (*SHOWN,), (n_train,))
                rows.append((f"{name}: {shows[name]}<br>{kind}, {n_splits}", *map(_broken, cells)))
            means = [
                np.mean([_mean(scores[method, n_train]) for scores in by_set.values()]) for method in SHOWN
            ]
            gap = _broken(str(gap_of(by_set, DEFAULT, FOREST, n_train)))
            rows.append(
                (f"**mean of {len(by_set)} sets**<br>{kind}", gap, *(f"{mean:.3f}" for mean in means))
            )
        heading = f"### With {_images([n_train])}"
        parts.append(f"{heading}\n\n{markdown_table(header, rows)}")
    return "\n".join(parts).rstrip()


def _by_kind(
    results: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, dict[str, Scores]], dict[str, str]]:
    """Give the scores of each set by kind, under the same names of methods, and what each set shows."""
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    shows = OBJECTS | KINDS
    for result in results:
        start, kind = _kind_of(result["name"])
        shows |= result.get("kinds", {})
        for run in result["runs"]:
            name = run.get("set", result["name"].removeprefix(start))
            method = _NAMES.get(run["method"], run["method"])
            runs.setdefault(kind, {}).setdefault(name, []).append(run | {"method": method})
    by_kind: dict[str, dict[str, Scores]] = {
        kind: {name: scores_of({"runs": own}) for name, own in sorted(of_sets.items())}
        for kind, of_sets in runs.items()
    }
    return by_kind, shows


def _kind_of(name: str) -> tuple[str, str]:
    return next((entry for entry in _STARTS.items() if name.startswith(entry[0])), ("", _FIRST_LOOK))


def headline(results: Iterable[dict[str, Any]]) -> str:
    """Compare the recipe of the paper, and segkit's own, with two rivals, on the splits that all four ran."""
    results = list(results)
    by_set = by_set_of(results)
    rows, gaps = [], {}
    for rival, n_train in product(SHORT, sizes_of(by_set)):
        shared = _shared(by_set, (*RECIPES, rival), n_train)
        found = [gap for recipe in RECIPES if (gap := gap_of(shared, recipe, rival, n_train))]
        if shared:
            gaps[rival, n_train] = found[0]
            splits = ", ".join(
                f"{name} ({_n_draws({name: scores}, RECIPES, (n_train,))})" for name, scores in shared.items()
            )
            told = [f"{gap}, may be chance" if gap.in_doubt else str(gap) for gap in found]
            rows.append((n_train, f"{SHORT[rival]}: {splits}", *map(_broken, told)))
    header = ("training images", "less: sets (splits)", *(TITLES[recipe] for recipe in RECIPES))
    limited = _budget(results, (FCN,))
    return (
        f"{markdown_table(header, rows)}\n{_verdict(gaps)} {limited} of this FCN-8s were stopped by their budget of "
        "training steps."
    )


def against_unet(results: Iterable[dict[str, Any]]) -> str:
    """Compare segkit's recipes with the pre-trained U-Net on each set, on the splits that all three ran."""
    by_set = by_set_of(results)
    rows = []
    for n_train, (name, scores) in product(sizes_of(by_set), by_set.items()):
        shared = _shared({name: scores}, (UNET, *OURS), n_train)
        if not shared:
            continue
        means = [f"{_mean(shared[name][method, n_train]):.3f}" for method in (UNET, *OURS)]
        gaps = [_broken(str(gap_of(shared, method, UNET, n_train))) for method in OURS]
        rows.append((n_train, f"{name} ({_n_draws(shared, (UNET,), (n_train,))})", *means, *gaps))
    ours = ("two networks", "no networks")
    header = (
        "training images",
        "set (splits)",
        "U-Net",
        *ours,
        *(f"{title}, less the U-Net" for title in ours),
    )
    return markdown_table(header, rows).rstrip()


def _shared(by_set: Mapping[str, Scores], methods: Iterable[str], n_train: int) -> dict[str, Scores]:
    """Keep the runs that all methods have, and the sets that have any."""
    kept: dict[str, Scores] = {}
    for name, scores in by_set.items():
        own = {(method, n_train): scores.get((method, n_train), {}) for method in methods}
        keys = set.intersection(*(set(found) for found in own.values()))
        if keys:
            kept[name] = {key: {one: found[one] for one in sorted(keys)} for key, found in own.items()}
    return kept


def _verdict(gaps: Mapping[tuple[str, int], Gap]) -> str:
    """Say where the recipe of the paper differs from each rival beyond chance, and whether that shows its headline."""
    told, shown = [], False
    for rival, title in SHORT.items():
        known = {
            n_train: gap.found.difference
            for (own, n_train), gap in gaps.items()
            if own == rival and not gap.in_doubt
        }
        sides = {
            "above": [n_train for n_train, difference in known.items() if difference > 0],
            "below": [n_train for n_train, difference in known.items() if difference < 0],
        }
        found = [f"{side} the {title} with {_images(sizes)}" for side, sizes in sides.items() if sizes]
        told.append(_and(found) or f"neither above nor below the {title}")
        shown |= rival == FCN and bool(sides["above"])
    conclusion = "" if shown else " So these runs do not show the paper's headline."
    return f"Beyond chance, the recipe of the paper is {', and '.join(told)}.{conclusion}"


def few_runs(results: Iterable[Mapping[str, Any]]) -> str:
    """Say how many draws of training images there are, and how few networks were trained."""
    results = list(results)
    by_kind, _ = _by_kind(results)
    developed = by_kind["development"]
    counts = [f"{_n_draws(by_set, (*SHOWN,), (1, 2))} on the {kind} sets" for kind, by_set in by_kind.items()]
    of_paper = _n_draws(developed, (PAPER,), (1, 2))
    runs = [run for result in results for run in result["runs"] if run["method"] in NETWORKS]
    devices = {_DEVICES.get(run["device"], run["device"]) for run in runs}
    return "\n".join(
        [
            f"- **Few draws of training images.** With 1 or 2 training images: {_and(counts)}; of the recipe of the paper "
            f"{of_paper} on the development sets, fewer on the others. With so few images the draw matters most: ten draws "
            "are few.",
            f"- **Few runs of trained networks.** FCN-8s and U-Net were trained on {_and(sorted(devices))}: "
            f"{_places(developed)}. {_budget(results, NETWORKS)} were stopped by their budget of steps: with more they may "
            "score higher.",
        ]
    )


def _places(by_set: Mapping[str, Scores]) -> str:
    """Tell on which sets which networks were trained, with how many images and splits."""
    trained = {
        name: [method for method in NETWORKS if any(own == method for own, _ in scores)]
        for name, scores in by_set.items()
    }
    told: dict[str, list[str]] = {}
    for name, methods in trained.items():
        both = all(any(method.startswith(kind) for method in methods) for kind in ("fcn", "unet"))
        own = {name: by_set[name]}
        sizes = sorted({n_train for method, n_train in by_set[name] if method in NETWORKS})
        n_splits = _n_draws(own, NETWORKS, sizes) if methods else "0"
        what = f"with {_images(sizes)}, {n_splits} split{'s' * (n_splits != '1')}" if methods else "none"
        if methods and not both:
            what = f"only {_and(TITLES[method] for method in methods)}, {what}"
        told.setdefault(what, []).append(name)
    in_order = sorted(told.items(), key=lambda item: (item[0] == "none", item[0].startswith("only ")))
    return "; ".join(f"on {_and(names)} {what}" for what, names in in_order)


def _n_draws(by_set: Mapping[str, Scores], methods: Sequence[str], sizes: Sequence[int]) -> str:
    """Tell the least and the greatest number of splits of the runs of some methods and sizes."""
    return _range(
        len({seed for seed, _ in found})
        for scores in by_set.values()
        for (method, n_train), found in scores.items()
        if method in methods and n_train in sizes
    )


def _range(counts: Iterable[int]) -> str:
    ordered = sorted(counts)
    return " to ".join(map(str, sorted({ordered[0], ordered[-1]})))


def _budget(results: Iterable[Mapping[str, Any]], methods: Sequence[str]) -> str:
    runs = [run for result in results for run in result["runs"] if run["method"] in methods]
    return f"{sum(bool(run['budget_limited']) for run in runs)} of {len(runs)} runs"


def _broken(cell: str) -> str:
    """Break a cell into lines before its interval and its remarks, to make its column narrow; an interval stays whole."""
    return cell.replace(" (", "<br>(").replace(" to ", "\u00a0to\u00a0").replace(", ", "<br>")


def _mean(scores: Mapping[tuple[int, str], float]) -> float:
    return float(np.mean(list(scores.values())))


def _images(sizes: Sequence[int]) -> str:
    return f"{_and(map(str, sizes))} training image{'s' * (max(sizes) > 1)}"


def _and(words: Iterable[str]) -> str:
    """Join words by commas and "and"."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last
