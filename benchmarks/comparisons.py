"""Tables and figures of the few-shot runs: every set, rivals, parts of the recipe, filter banks, time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure

from benchmarks.figures import OF_METHODS, save
from benchmarks.markdown import broken, difference_of, interval_of, markdown_table, mean_of, paired
from benchmarks.rows import ROOT, Row, read
from benchmarks.segmentation import DEVELOPMENT, MODULES, Scores, score_of, scores_of
from segkit.evaluation.statistics import Comparison, compare_pooled
from segkit.features import ModuleBank
from segkit.report.figures import COLOURS, MARKERS

DEFAULT, NETWORKS, PAPER, FOREST, CENTRED = (
    "segkit-no-networks",
    "segkit-networks",
    "segkit-paper",
    "forest",
    "forest-centred",
)
FCN, UNET, UNET_1200, TUNED = "fcn-vgg19", "smp", "smp-1200", "segkit-tuned"
TITLES = {
    NETWORKS: "**segkit**, two networks",
    DEFAULT: "**segkit**, no networks",
    PAPER: "recipe of the paper, VGG19 to conv3_4",
    FOREST: "pixel forest",
    "forest-convpaint": "pixel forest on convpaint's three layers (VGG19)",
    "fcn": "FCN-8s on SqueezeNet, pre-trained",
    FCN: "FCN-8s on VGG19 to conv3_4, pre-trained",
    "fcn-scratch": "FCN-8s on SqueezeNet, from scratch",
    "unet": "U-Net",
    CENTRED: "pixel forest, centred, adaptive threshold",
    "convpaint": "convpaint, first layer (VGG19)",
    "convpaint-m": "convpaint, three layers (VGG19)",
    "convpaint-centred": "convpaint, three layers (VGG19), centred, adaptive threshold",
    "fcn-best": "FCN-8s on SqueezeNet, pre-trained, to early stopping",
    "fcn-vgg19-best": "FCN-8s on VGG19 to conv3_4, pre-trained, to early stopping",
    "unet-best": "U-Net of 32 filters, to early stopping",
    UNET: "U-Net on MobileNetV2, pre-trained, to early stopping",
    UNET_1200: "U-Net on MobileNetV2, pre-trained, three trainings of at most 1200 steps",
}
# What the sets show, by kind. Defaults were chosen in view of the first, nothing in view of the others.
KINDS = {
    "development": {
        "drive": "vessels of the retina",
        "dsb2018_stained": "stained nuclei",
        "isbi2012_em": "membranes, electron microscopy",
        "kvasir_seg_256": "polyps, endoscopy",
    },
    "first look": {
        "axon_sem": "myelin and axons, scanning EM, three classes",
        "lung_cxr": "lungs, chest X-ray",
        "monuseg": "nuclei, H&E",
        "usiigaci_phase": "cells, phase contrast",
        "vnc_mito": "mitochondria, EM",
        "wbc_cellavision": "cytoplasm and nucleus of white cells, three classes",
    },
    "external": {
        "busi": "breast tumours, ultrasound",
        "chase_db1": "vessels, fundus",
        "cvc_clinicdb": "polyps, endoscopy",
        "dsb2018_fluo": "nuclei, fluorescence",
        "glas": "glands, histology",
        "isic2018_512": "skin lesions, dermoscopy",
    },
}
OBJECTS = KINDS["development"]
# Columns of the README's table.
IN_SHORT = {
    TUNED: "segkit, trained networks",
    NETWORKS: "segkit, two networks",
    DEFAULT: "segkit, no networks",
    FOREST: "pixel forest",
    FCN: "FCN-8s on VGG19, pre-trained to conv3_4",
}
SHOWN = {DEFAULT: "segkit, no networks (default)", NETWORKS: "segkit, two networks", FOREST: "forest"}
# Changed parts of a recipe: the recipe, the variant and its title, in the order of the table.
PARTS = (
    ("round", "no-multiscale", "without networks: no multiscale filters"),
    ("round", "no-position", "without networks: no distance from the picture's centre"),
    ("round", "no-scattering", "without networks: no scattering"),
    (DEFAULT, "round", "without networks: no elongated filters"),
    ("first", "set", "two networks: channels centred on the whole set, not on each image"),
    ("first", "iou", "two networks: one threshold for all images, of the highest held-out IoU"),
    ("first", "zero", "two networks: threshold at the sign of the decision"),
    ("first", "linear", "two networks: no Gaussian kernels"),
    ("first", "squeezenet", "two networks: no VGG19"),
    ("first", "no-half", "two networks: no SqueezeNet at half size"),
)
# Filter banks of the page that helps to choose one; all but the last with the default recipe behind them.
BANKS = {
    DEFAULT: "default: multiscale, elongated, scattering, position",
    "no-scattering": "multiscale, position",
    "no-multiscale": "scattering, position",
    NETWORKS: "`two-networks`: one of the next two, chosen by the training images",
    "first": "VGG19 to conv2_2, SqueezeNet, multiscale",
    "vgg": "VGG19 to conv3_4, multiscale",
    "squeezenet": "SqueezeNet, multiscale",
    PAPER: "VGG19 to conv3_4 with the recipe of the paper",
}
RECIPES = {
    PAPER: "first architecture (VGG19 to conv3_4)",
    "segkit-paper-as-printed": "the same as printed",
    "segkit-paper-scattering": "second architecture (scattering)",
}
SEQUENCES = {
    "modules-morlet": "Morlet, modulus",
    "modules-gabor": "Gabor",
    "modules-shearlet": "shearlets",
    "modules-relu": "Morlet, ReLU",
    "modules-tanh": "Morlet, tanh",
    "modules-subsample": "Morlet, every second value",
    "modules-average": "Morlet, means of 2 x 2",
    "modules-max": "Morlet, largest of 2 x 2",
}
# Splits that nearly all methods ran. Means that stand side by side are those of these splits, where some ran more.
N_SPLITS = 5
SIZES = (1, 5)


@dataclass(frozen=True)
class Gap:
    """Difference of two methods on the splits that both ran, sets pooled with equal weight."""

    found: Comparison
    sets: tuple[str, ...]

    def __str__(self) -> str:
        return difference_of(self.found, doubt=True)

    @property
    def splits(self) -> str:
        """Sets and their numbers of splits."""
        if len(self.sets) == len(OBJECTS):
            return f"all ({' to '.join(map(str, sorted(set(self.found.n_seeds))))})"
        return ", ".join(f"{name} ({n})" for name, n in zip(self.sets, self.found.n_seeds, strict=True))


def gap_of(by_set: Mapping[str, Scores], first: str, second: str, n_train: int) -> Gap | None:
    """Compare two methods, image by image; None if they have no split in common."""
    found = {
        name: pair
        for name, scores in by_set.items()
        if (pair := paired(*(scores.get((method, n_train), {}) for method in (first, second)))) is not None
    }
    return Gap(compare_pooled(list(found.values())), tuple(found)) if found else None


def shared_by(by_set: Mapping[str, Scores], methods: Iterable[str], n_train: int) -> dict[str, Scores]:
    """Keep the runs that all methods have, and the sets that have any."""
    kept: dict[str, Scores] = {}
    for name, scores in by_set.items():
        own = {(method, n_train): scores.get((method, n_train), {}) for method in methods}
        keys = set.intersection(*(set(found) for found in own.values()))
        if keys:
            kept[name] = {key: {one: found[one] for one in sorted(keys)} for key, found in own.items()}
    return kept


def _of_kind(rows: Iterable[Row], kind: str) -> dict[str, Scores]:
    found = scores_of(row for row in rows if row["where"]["set"] in KINDS[kind])
    return dict(sorted(found.items()))


def _mean(scores: Mapping[Any, float]) -> float:
    return float(np.mean(list(scores.values())))


def _n_splits(scores: Iterable[tuple[int, str]]) -> int:
    return len({seed for seed, _ in scores})


def _images(n_train: int) -> str:
    return f"{n_train} training image{'s' * (n_train > 1)}"


def at_five(rows: list[Row]) -> str:
    """Tabulate a row for each development set, at five training images."""
    own = [
        row
        for row in (*rows, *_trained_networks())
        if row["where"]["n_train"] == 5 and row["where"]["set"] in OBJECTS
    ]
    by_set = scores_of(own)
    most = max(_n_splits(by_set[name].get((method, 5), ())) for name in OBJECTS for method in IN_SHORT)
    table = []
    for name, title in OBJECTS.items():
        cells = []
        for method in IN_SHORT:
            n_splits = _n_splits(by_set[name].get((method, 5), ()))
            note = "" if n_splits == most else f" ({n_splits} split{'s' * (n_splits > 1)})"
            cells.append(f"{_object_scores(own, name, method)[0]:.3f}{note}" if n_splits else "")
        table.append((f"{title} ({name})", *cells))
    runs = [row["figures"] for row in own if row["where"]["method"] == FCN]
    n_limited = sum(bool(figures.get("budget_limited")) for figures in runs)
    return (
        f"{markdown_table(('object IoU', *IN_SHORT.values()), table)}\n"
        f"Means over {most} splits, where no other number is given. Blank: not run. {n_limited} of {len(runs)} runs of the "
        "FCN-8s were stopped by their budget of training steps; its layers above conv3_4 start from random numbers."
    )


def _trained_networks() -> list[Row]:
    """Return the rows of the recipe that the study of trained networks has, as those of a method."""
    return [
        {"where": row["where"] | {"method": TUNED}, "figures": {"images": row["figures"]["images"]["recipe"]}}
        for row in read("tuned")
        if "config" not in row["where"]  # of networks that were trained for longer
    ]


def _object_scores(rows: Iterable[Row], name: str, method: str) -> tuple[float, ...]:
    """Mean IoU and Dice of class 1 over images and splits; undefined scores are left out."""
    found = [
        [of_class[1] for of_class in score_of(counts)[1:]]
        for row in rows
        if (row["where"]["set"], row["where"]["method"]) == (name, method)
        for counts in row["figures"]["images"].values()
    ]
    return tuple(np.nanmean(found, axis=0).tolist())


def sixteen(rows: list[Row]) -> str:
    """Tabulate every set, and the means of each kind of sets, for each number of training images."""
    header = ("set<br>kind, splits", "default less forest", *SHOWN.values())
    parts = []
    for n_train in SIZES:
        table = []
        for kind, titles in KINDS.items():
            # the splits that all methods of the table ran, so that a row compares like with like
            by_set = shared_by(_of_kind(rows, kind), SHOWN, n_train)
            for name, scores in by_set.items():
                gap = str(gap_of({name: scores}, DEFAULT, FOREST, n_train))
                cells = [gap, *(mean_of(scores[method, n_train]) for method in SHOWN)]
                n_splits = _n_splits(scores[DEFAULT, n_train])
                title = f"{name}: {titles[name]}" if n_train == SIZES[0] else name
                table.append((f"{title}<br>{kind}, {n_splits}", *map(broken, cells)))
            means = [
                np.mean([_mean(scores[method, n_train]) for scores in by_set.values()]) for method in SHOWN
            ]
            gap = broken(str(gap_of(by_set, DEFAULT, FOREST, n_train)))
            table.append(
                (f"**mean of {len(by_set)} sets**<br>{kind}", gap, *(f"{mean:.3f}" for mean in means))
            )
        parts.append(f"**With {_images(n_train)}:**\n\n{markdown_table(header, table)}")
    return "\n".join(parts)


def rivals(rows: list[Row]) -> str:
    """Tabulate every method on the development sets: its means, and segkit less it on the splits of both."""
    by_set, budgets = _of_kind(rows, "development"), _budgets(rows)
    header = ("method", *OBJECTS, "default less it", "two networks less it", "stopped by the budget")
    parts = []
    for n_train in SIZES:
        table = []
        for method, title in TITLES.items():
            found = {
                name: scores[method, n_train]
                for name, scores in by_set.items()
                if (method, n_train) in scores
            }
            if not found:
                continue
            cells = []
            for name in OBJECTS:
                n = _n_splits(found.get(name, ()))
                note = "" if n in (0, N_SPLITS, 2 * N_SPLITS) else f" ({n})"
                cells.append(f"{_mean(found[name]):.3f}{note}" if n else "")
            gaps = [
                "" if own == method else broken(str(gap_of(by_set, own, method, n_train)))
                for own in (DEFAULT, NETWORKS)
            ]
            table.append((title, *cells, *gaps, budgets.get((method, n_train), "")))
        parts.append(f"**With {_images(n_train)}:**\n\n{markdown_table(header, table)}")
    return "\n".join(parts)


def _budgets(rows: Iterable[Row]) -> dict[tuple[str, int], str]:
    """Write how many of the runs of a method were stopped by their budget of steps, where any was."""
    runs: dict[tuple[str, int], list[bool]] = {}
    for row in rows:
        key = row["where"]["method"], row["where"]["n_train"]
        runs.setdefault(key, []).append(bool(row["figures"].get("budget_limited")))
    return {key: f"{sum(found)} of {len(found)} runs" for key, found in runs.items() if any(found)}


def headline(rows: list[Row]) -> str:
    """Compare the recipe of the paper, and segkit's own, with two rivals, on the splits that all four ran."""
    by_set, table = _of_kind(rows, "development"), []
    recipes = (PAPER, NETWORKS, DEFAULT)
    for rival, title in ((FCN, "pre-trained FCN-8s"), (FOREST, "pixel forest")):
        for n_train in (1, 2, 3, 5, 15, 40):
            shared = shared_by(by_set, (*recipes, rival), n_train)
            if shared:
                gaps = [gap_of(shared, recipe, rival, n_train) for recipe in recipes]
                table.append((n_train, f"{title}: {gaps[0].splits}", *(broken(str(gap)) for gap in gaps)))
    header = ("training images", "less: sets (splits)", *(TITLES[recipe] for recipe in recipes))
    return markdown_table(header, table)


def against_unet(rows: list[Row]) -> str:
    """Compare segkit's recipes with the pre-trained U-Net on each set, on the splits that all ran."""
    by_set = scores_of((*rows, *_trained_networks()))
    ours, table = {TUNED: "trained networks", NETWORKS: "two networks", DEFAULT: "no networks"}, []
    rivals = {UNET: "to early stopping", UNET_1200: "1200 steps"}
    for n_train, (rival, trained), (name, scores) in product(SIZES, rivals.items(), by_set.items()):
        shared = shared_by({name: scores}, (rival, *ours), n_train)
        if shared:
            means = [f"{_mean(shared[name][method, n_train]):.3f}" for method in (rival, *ours)]
            gaps = [gap_of(shared, method, rival, n_train) for method in ours]
            table.append((n_train, trained, gaps[0].splits, *means, *(broken(str(gap)) for gap in gaps)))
    less = (f"{title}, less the U-Net" for title in ours.values())
    header = ("training images", "U-Net, trained", "set (splits)", "U-Net", *ours.values(), *less)
    return markdown_table(header, table)


def equal_forest(rows: list[Row]) -> str:
    """Compare segkit's recipes with the forest that has segkit's centring and threshold, on sets of the first look."""
    by_set = _of_kind(rows, "first look")
    table = [
        (n_train, *(str(gap_of(by_set, method, CENTRED, n_train)) for method in (DEFAULT, NETWORKS)))
        for n_train in SIZES
    ]
    return markdown_table(("training images", "default less it", "two networks less it"), table)


def parts(rows: list[Row]) -> str:
    """Tabulate what each part is worth: the recipe with a part changed, less the recipe."""
    found = scores_of(row for row in rows if row["where"]["set"] in DEVELOPMENT)
    by_set = {name: found[name] for name in DEVELOPMENT}  # bootstrap intervals depend on the order
    table = [
        (title, *(str(gap_of(by_set, variant, recipe, n_train)) for n_train in SIZES))
        for recipe, variant, title in PARTS
    ]
    return markdown_table(("changed part", *map(_images, SIZES)), table)


def banks(rows: list[Row]) -> str:
    """Compare filter banks: difference of mean IoU to the default bank, and object IoU on each set, on the first splits."""
    own = [row for row in rows if row["where"]["set"] in DEVELOPMENT and row["where"]["seed"] < N_SPLITS]
    found = scores_of(own)
    by_set = {name: found[name] for name in DEVELOPMENT}
    header = ("filter bank", "mean IoU, less the default's", "vessels", "nuclei", "membranes", "polyps")
    parts = []
    for n_train in SIZES:
        of_size = [row for row in own if row["where"]["n_train"] == n_train]
        table = []
        for method, title in BANKS.items():
            gap = "" if method == DEFAULT else str(gap_of(by_set, method, DEFAULT, n_train))
            cells = [f"{_object_scores(of_size, name, method)[0]:.3f}" for name in OBJECTS]
            n_splits = {_n_splits(by_set[name][method, n_train]) for name in OBJECTS}
            note = "" if n_splits == {N_SPLITS} else f" ({' to '.join(map(str, sorted(n_splits)))} splits)"
            table.append((title + note, gap, *cells))
        parts.append(f"### With {_images(n_train)}\n\n{markdown_table(header, table)}")
    return "\n".join([*parts, f"Means over {N_SPLITS} splits, where no other number is given."])


def recipes(rows: list[Row]) -> str:
    """Compare the architectures of the paper, and the first as it is printed, on the splits that all ran."""
    own = [row for row in rows if row["where"]["set"] in DEVELOPMENT]
    return _side_by_side(own, RECIPES, PAPER)


def modules(rows: list[Row]) -> str:
    """Compare module sequences, with the Bessel bound of each layer on 256 x 256 pixels, on the splits that all ran."""
    own = [row for row in rows if row["where"]["set"] in DEVELOPMENT]
    titles = {}
    for method, title in SEQUENCES.items():
        bank = ModuleBank(MODULES[method]["modules"])
        bounds = ", ".join(f"{bound:.2f}" for bound in bank.bessel_bounds((256, 256)))
        titles[method] = f"{title} ({len(bank.channels(1))} channels, {bounds})"
    return _side_by_side(own, titles, "modules-morlet")


def _side_by_side(rows: list[Row], titles: Mapping[str, str], reference: str) -> str:
    """Tabulate mean IoU by set, and the mean difference to one of the methods, for each number of training images."""
    found, parts = scores_of(rows), []
    for n_train in SIZES:
        by_set = shared_by({name: found[name] for name in DEVELOPMENT}, titles, n_train)
        table = []
        for method, title in titles.items():
            gap = "" if method == reference else broken(str(gap_of(by_set, method, reference, n_train)))
            cells = (f"{_mean(scores[method, n_train]):.3f}" for scores in by_set.values())
            table.append((title, *cells, gap))
        splits = (f"{name} ({_n_splits(scores[reference, n_train])})" for name, scores in by_set.items())
        header = ("", *splits, f"less {titles[reference]}")
        parts.append(f"**With {_images(n_train)}:**\n\n{markdown_table(header, table)}")
    return "\n".join(parts)


def cost(rows: list[Row]) -> str:
    """Tabulate seconds of training and of one image, and memory, of every method with five training images."""
    table = []
    for method, title in TITLES.items():
        cells, memory = [], 0.0
        for name in OBJECTS:
            own = [
                row
                for row in rows
                if (row["where"]["set"], row["where"]["method"], row["where"]["n_train"]) == (name, method, 5)
            ]
            if not own:
                cells.append("")
                continue
            fit, predict = (
                np.median([row["figures"][f"{task}_seconds"] for row in own]) for task in ("fit", "predict")
            )
            cells.append(f"{fit:.0f}, {predict:.1f}")
            memory = max(memory, *(row["figures"]["peak_memory_mib"] for row in own))
        if any(cells):
            table.append((title, *cells, f"{memory / 1024:.1f} GiB"))
    return markdown_table(("seconds to train, and for one image", *OBJECTS, "memory, at most"), table)


# Methods in the figure of learning curves, networks trained to early stopping among them; more would hide each other.
DRAWN = (NETWORKS, DEFAULT, PAPER, FOREST, CENTRED, "fcn-best", FCN, "unet-best", UNET)


def draw_learning_curves() -> None:
    """Draw mean IoU against the number of training images on the first splits, a panel for each set."""
    rows = [row for row in read("segmentation") if row["where"]["seed"] < N_SPLITS]
    by_set = _of_kind(rows, "development")
    figure = Figure(figsize=(10, 7.2), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True).ravel()
    sizes = sorted({n_train for scores in by_set.values() for method, n_train in scores if method in DRAWN})
    plain = {method: TITLES[method].replace("**", "") for method in DRAWN}
    for axes, (name, scores) in zip(panels, by_set.items(), strict=True):
        for index, (method, title) in enumerate(plain.items()):
            curve = [(size, scores[method, size]) for size in sizes if (method, size) in scores]
            if not curve:
                continue
            # side by side, so that intervals do not hide each other
            shift = np.exp(0.03 * (index - len(plain) / 2))
            places = [size * shift for size, _ in curve]
            colour = [*COLOURS, "black"][index]
            means = [_mean(run) for _, run in curve]
            axes.plot(places, means, color=colour, marker=MARKERS[index], label=title)
            axes.vlines(
                places, *np.transpose([interval_of(run) for _, run in curve]), color=colour, alpha=0.7
            )
        axes.set(title=name, xscale="log", ylabel="mean IoU")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[2:]:
        axes.set_xlabel("training images")
    lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    handles = [lines[title] for title in plain.values() if title in lines]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(ROOT / "docs" / "learning_curves.png", dpi=105)


# Methods of the spread, in the order of rows, by a short name; numbers of training images, in that of columns.
SPREAD = {
    NETWORKS: "segkit, two networks",
    DEFAULT: "segkit, no networks",
    PAPER: "paper's recipe (VGG19)",
    FOREST: "pixel forest",
    FCN: "FCN-8s (VGG19)",
    "fcn": "FCN-8s (SqueezeNet)",
}
SPREAD_SIZES = (1, 5, 15)


def spread_of(scores: Scores, n_train: int) -> tuple[dict[str, list[float]], int]:
    """Return the mean IoU of single test images by method, and the number of splits: those that all methods ran."""
    own = [method for method in SPREAD if (method, n_train) in scores]
    shared = shared_by({"": scores}, own, n_train).get("", {}) if own else {}
    found = {method: list(scores.values()) for (method, _), scores in shared.items()}
    return found, _n_splits(next(iter(shared.values()), ()))


def draw_spread() -> None:
    """Draw the mean IoU of each test image, and a box of its quartiles, a row for each set, a column for each size."""
    by_set = _of_kind(read("segmentation"), "development")
    figure = Figure(figsize=(10, 9.6), layout="constrained")
    panels = figure.subplots(len(by_set), len(SPREAD_SIZES), sharex="row", sharey=True, squeeze=False)
    for (name, scores), of_row in zip(by_set.items(), panels, strict=True):
        for n_train, axes in zip(SPREAD_SIZES, of_row, strict=True):
            found, n_splits = spread_of(scores, n_train)
            for place, method in enumerate(SPREAD):
                if method in found:
                    _draw_row(axes, place, found[method], OF_METHODS[place])
                else:
                    anchor = axes.get_yaxis_transform()
                    axes.text(0.02, place, "not run", transform=anchor, va="center", color="0.4")
            title = f"{_images(n_train)}, {n_splits} split{'s' * (n_splits > 1)}"
            axes.set_title(title, fontsize=9, loc="right")
            axes.grid(axis="x", alpha=0.3)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
        of_row[0].set_title(name, x=-0.02, ha="right", fontsize=10, fontweight="bold")
    panels[0, 0].set_yticks(range(len(SPREAD)), list(SPREAD.values()))
    panels[0, 0].set_ylim(len(SPREAD) - 0.5, -0.5)
    for axes in panels[-1]:
        axes.set_xlabel("mean IoU of a test image")
    save(figure, ROOT / "docs" / "spread.png")


def _draw_row(axes: Axes, place: int, values: Sequence[float], colour: str) -> None:
    """Draw a point for each value, and a box of their quartiles."""
    # golden-section offsets spread points evenly, and are the same every time
    offsets = 0.6 * ((np.arange(len(values)) * 0.618) % 1 - 0.5)
    axes.scatter(values, place + offsets, s=7, color=colour, lw=0)
    [box] = boxplot_stats(values)
    axes.barh(place, box["q3"] - box["q1"], left=box["q1"], height=0.62, fill=False, linewidth=1)
    ends = [box["whislo"], box["q3"]], [box["q1"], box["whishi"]]
    axes.hlines([place, place], *ends, color="black", linewidth=1)
    axes.vlines(box["med"], place - 0.31, place + 0.31, color="black", linewidth=2.2)


TABLES = {
    "at_five": at_five,
    "sixteen": sixteen,
    "rivals": rivals,
    "headline": headline,
    "against_unet": against_unet,
    "equal_forest": equal_forest,
    "parts": parts,
    "banks": banks,
    "cost": cost,
    "recipes": recipes,
    "modules": modules,
}
FIGURES = (draw_learning_curves, draw_spread)
