"""Tables and curves of the segmentation runs, made from their result files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.common import difference_of, interval_of, markdown_table, mean_of, paired, with_interval
from benchmarks.objects import image_scores_of
from benchmarks.segmentation import SETS, records_of, scores_of
from segkit.evaluation.statistics import Comparison, bootstrap_interval, compare, compare_pooled
from segkit.report.figures import COLOURS, MARKERS

TITLES = {
    "segkit-networks": "**segkit**, two networks",
    "segkit-no-networks": "**segkit**, no networks",
    "segkit-paper": "recipe of the paper, VGG19 to conv3_4",
    "forest": "pixel forest",
    "forest-convpaint": "pixel forest on three layers, as convpaint's (VGG19)",
    "forest-convpaint-default": "pixel forest on one layer, convpaint's default (VGG19)",
    "fcn": "FCN-8s on SqueezeNet, pre-trained",
    "fcn-vgg19": "FCN-8s on VGG19 to conv3_4, pre-trained",
    "fcn-scratch": "FCN-8s on SqueezeNet, from scratch",
    "unet": "U-Net",
    "forest-centred": "pixel forest, centred, adaptive threshold",
    "convpaint": "convpaint, first layer (VGG19)",
    "convpaint-m": "convpaint, three layers (VGG19)",
    "convpaint-centred": "convpaint, three layers (VGG19), centred, adaptive threshold",
    "fcn-best": "FCN-8s on SqueezeNet, pre-trained, to early stopping",
    "fcn-vgg19-best": "FCN-8s on VGG19 to conv3_4, pre-trained, to early stopping",
    "unet-best": "U-Net of 32 filters, to early stopping",
    "smp": "U-Net on MobileNetV2, pre-trained, to early stopping",
}
# Splits that nearly all methods ran. Means that stand side by side are those of these splits, where some ran more.
N_SPLITS = 5
# Methods in the figure of learning curves, networks trained to early stopping among them; more would hide each other.
DRAWN = (
    "segkit-networks",
    "segkit-no-networks",
    "segkit-paper",
    "forest",
    "forest-centred",
    "fcn-best",
    "fcn-vgg19",
    "unet-best",
    "smp",
)
OBJECTS = {
    "drive": "vessels of the retina",
    "dsb2018_stained": "stained nuclei",
    "isbi2012_em": "membranes, electron microscopy",
    "kvasir_seg_256": "polyps, endoscopy",
}
# Methods that tell objects apart.
SPLITTINGS = {
    "segkit": "**segkit**, objects annotated",
    "segkit-class-masks": "**segkit**, class masks only",
    "watershed": "watershed, holes filled, peaks a radius apart",
    "watershed-half": "watershed, peaks half a radius apart",
    "components": "connected regions",
    "forest-watershed": "pixel forest; watershed, holes filled, peaks a radius apart",
}
# Columns of the README's table.
IN_SHORT = {
    "segkit-networks": "segkit, two networks",
    "segkit-no-networks": "segkit, no networks",
    "forest": "pixel forest",
    "fcn-vgg19": "FCN-8s on VGG19, pre-trained to conv3_4",
}
# Changed parts of a recipe: the recipe, the variant and its title, in the order of the table.
PARTS = (
    ("round", "no-multiscale", "without networks: no multiscale filters"),
    ("round", "no-position", "without networks: no distance from the picture's centre"),
    ("round", "no-scattering", "without networks: no scattering"),
    ("segkit-no-networks", "round", "without networks: no elongated filters"),
    ("first", "set", "two networks: channels centred on the whole set, not on each image"),
    ("first", "iou", "two networks: one threshold for all images, of the highest held-out IoU"),
    ("first", "zero", "two networks: threshold at the sign of the decision"),
    ("first", "linear", "two networks: no Gaussian kernels"),
    ("first", "squeezenet", "two networks: no VGG19"),
    ("first", "no-half", "two networks: no SqueezeNet at half size"),
)
_SHORT_OBJECTS = ("vessels", "nuclei", "membranes", "polyps")  # in the order of OBJECTS
# Filter banks of the page that helps to choose one; all but the last with the default recipe behind them.
BANKS = {
    "segkit-no-networks": "default: multiscale, elongated, scattering, position",
    "no-scattering": "multiscale, position",
    "no-multiscale": "scattering, position",
    "segkit-networks": "`two-networks`: one of the next two, chosen by the training images",
    "first": "VGG19 to conv2_2, SqueezeNet, multiscale",
    "vgg": "VGG19 to conv3_4, multiscale",
    "squeezenet": "SqueezeNet, multiscale",
    "segkit-paper": "VGG19 to conv3_4 with the recipe of the paper",
}

# Mean IoU of each seed and image, by method and number of training images.
Scores = Mapping[tuple[str, int], Mapping[tuple[int, str], float]]


@dataclass(frozen=True)
class Gap:
    """Difference of two methods on the splits that both ran, sets pooled with equal weight."""

    found: Comparison
    of_seeds: dict[int, list[float]]
    sets: tuple[str, ...]

    def __str__(self) -> str:
        return difference_of(self.found)

    @property
    def in_doubt(self) -> bool:
        """Whether the interval holds 0: the difference may be chance."""
        low, high = self.found.interval
        return low <= 0 <= high

    @property
    def n_runs(self) -> int:
        """Pairs of runs compared."""
        return sum(map(len, self.of_seeds.values()))


def gap_of(by_set: Mapping[str, Scores], first: str, second: str, n_train: int) -> Gap | None:
    """Compare two methods, image by image; None if they have no split in common."""
    pairs, of_seeds, sets = [], {}, []
    for name, scores in by_set.items():
        if (found := paired(*(scores.get((method, n_train), {}) for method in (first, second)))) is None:
            continue
        sets.append(name)
        pairs.append(found)
        mine, theirs, _, seeds = map(np.array, found)
        for seed in np.unique(seeds).tolist():
            of_seeds.setdefault(seed, []).append(float(np.mean((mine - theirs)[seeds == seed])))
    return Gap(compare_pooled(pairs), of_seeds, tuple(sets)) if pairs else None


def by_set_of(results: Iterable[dict[str, Any]]) -> dict[str, Scores]:
    """Give the scores of each set; the files of one set are taken together."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        runs.setdefault(_set_of(result), []).extend(result["runs"])
    return {name: scores_of({"runs": found}) for name, found in runs.items()}


def _set_of(result: dict[str, Any]) -> str:
    return str(result["name"].partition("-")[2])


def first_splits(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the runs of the splits that nearly all methods ran."""
    return [run for run in result["runs"] if run["seed"] < N_SPLITS]


def sizes_of(by_set: Mapping[str, Scores]) -> list[int]:
    return sorted({n_train for scores in by_set.values() for _, n_train in scores})


def _object_scores(result: dict[str, Any]) -> dict[tuple[str, int], tuple[float, float]]:
    """Give the mean IoU and Dice of class 1 by method and number of training images; undefined scores are left out."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for record in records_of(result):
        key = record["method"], record["n_train"]
        found.setdefault(key, []).append((record["iou"][1], record["dice"][1]))
    return {key: tuple(np.nanmean(scores, axis=0).tolist()) for key, scores in found.items()}


def segmentation(results: list[dict[str, Any]]) -> str:
    """Make a table for each set: every method at every number of training images."""
    return "\n\n".join(f"### {_heading(result)}\n\n{_table_of_set(result)}" for result in results)


def _heading(result: dict[str, Any]) -> str:
    name, n_images = _set_of(result), len(result["runs"][0]["images"])
    return f"{name}: {OBJECTS[name]} ({n_images} test images in each split)"


def _table_of_set(result: dict[str, Any]) -> str:
    scores, objects = scores_of(result), _object_scores(result)
    header = (
        "training images",
        "method",
        "object IoU",
        "Dice",
        "mean IoU (95 % interval)",
        "splits",
        "mean IoU of the splits",
        "stopped by the budget",
    )
    rows = []
    for n_train, method in product(sorted({size for _, size in scores}), TITLES):
        if (method, n_train) not in scores:
            continue
        found = scores[method, n_train]
        means = _means_of_seeds(found)
        runs = [run for run in result["runs"] if (run["method"], run["n_train"]) == (method, n_train)]
        rows.append(
            (
                str(n_train),
                TITLES[method],
                *(f"{score:.3f}" for score in objects[method, n_train]),
                mean_of(found),
                str(len(means)),
                f"{min(means):.2f} to {max(means):.2f}" if len(means) > 1 else "",
                str(sum(bool(run["budget_limited"]) for run in runs) or ""),
            )
        )
    return markdown_table(header, rows).rstrip()


def _means_of_seeds(scores: Mapping[tuple[int, str], float]) -> list[float]:
    of_seeds: dict[int, list[float]] = {}
    for (seed, _), score in scores.items():
        of_seeds.setdefault(seed, []).append(score)
    return [float(np.mean(found)) for found in of_seeds.values()]


def at_five(results: list[dict[str, Any]]) -> str:
    """Make one row for each set, at five training images; fewer splits than the others are told."""
    most = max(len(_seeds(result, "segkit-networks")) for result in results)
    rows = []
    for result in results:
        cells, scores, objects = [], scores_of(result), _object_scores(result)
        for method in IN_SHORT:
            if (method, 5) not in scores:
                cells.append("")
                continue
            values = *objects[method, 5], float(np.mean(list(scores[method, 5].values())))
            n_seeds = len(_seeds(result, method))
            note = "" if n_seeds == most else f" ({_splits(n_seeds)})"
            cells.append(" / ".join(f"{value:.3f}" for value in values) + note)
        rows.append((f"{_set_of(result)}: {OBJECTS[_set_of(result)]}", *cells))
    header = ("object IoU / Dice / mean IoU", *IN_SHORT.values())
    return (
        f"{markdown_table(header, rows)}\nMeans over {most} splits, where no other number is given. Blank: not run. "
        f"{_limited(results, 'fcn-vgg19')}"
    )


def _limited(results: list[dict[str, Any]], method: str) -> str:
    runs = [
        run for result in results for run in result["runs"] if (run["method"], run["n_train"]) == (method, 5)
    ]
    n_limited = sum(bool(run["budget_limited"]) for run in runs)
    return (
        f"{n_limited} of {len(runs)} runs of the FCN-8s were stopped by their budget of training steps; its layers above "
        "conv3_4 start from random numbers."
    )


def _seeds(result: dict[str, Any], method: str) -> set[int]:
    return {run["seed"] for run in result["runs"] if (run["method"], run["n_train"]) == (method, 5)}


def findings(results: list[dict[str, Any]]) -> str:
    """Say what the comparisons and the changed parts say, in mean IoU."""
    by_set = by_set_of(results)

    def compared(first: str, second: str, n_train: int = 5, *, where: bool = False) -> str:
        return _judged(_known(gap_of(by_set, first, second, n_train)), rivals[second], where=where)

    def lost(recipe: str, variant: str) -> str:
        gaps = [_known(gap_of(by_set, recipe, variant, n_train)) for n_train in (1, 5)]
        return " and ".join(f"{gap.found.difference:.3f}{_doubt(gap)}" for gap in gaps)

    networks, plain, paper = "segkit-networks", "segkit-no-networks", "segkit-paper"
    fcn, equal, unet = "fcn-vgg19", "forest-centred", "smp"
    rivals = {
        "forest": "the pixel forest",
        equal: "the forest with segkit's centring and threshold",
        fcn: "the pre-trained FCN-8s",
        paper: "the paper's recipe",
        unet: "a U-Net on a pre-trained MobileNetV2",
    }
    return "\n".join(
        [
            f"- segkit with two networks is {compared(networks, 'forest')}, {compared(networks, equal)} and "
            f"{compared(networks, fcn, where=True)}.",
            f"- segkit without networks is {compared(plain, 'forest')}, {compared(plain, equal)} and {compared(plain, fcn)}."
            f"{_about_one_split(_known(gap_of(by_set, plain, fcn, 5)), 'FCN-8s')} With 1 training image it is "
            f"{compared(plain, 'forest', 1)} and {compared(plain, equal, 1)}.",
            f"- The recipe of the source paper (VGG19 to conv3_4) is {compared(paper, fcn, where=True)} and "
            f"{compared(paper, 'forest')}. With 1 training image it is {compared(paper, fcn, 1, where=True)} and "
            f"{compared(paper, 'forest', 1)}. segkit with two networks is {compared(networks, paper)}. Without networks it "
            f"is {compared(plain, paper)}.",
            f"- segkit with two networks is {compared(networks, unet, where=True)}. Without networks it is "
            f"{_judged(_known(gap_of(by_set, plain, unet, 5)), 'that U-Net', where=False)}. With 1 training image two "
            f"networks are {_judged(_known(gap_of(by_set, networks, unet, 1)), 'it', where=True)}."
            f"{_about_one_split(_known(gap_of(by_set, networks, unet, 5)), 'U-Net')}",
            "- Without networks, multiscale filters are worth "
            f"{lost('round', 'no-multiscale')} (with 1 and 5 training images), scattering {lost('round', 'no-scattering')}. "
            f"Centring each image is worth {lost('first', 'set')}, adapting the threshold to each image "
            f"{lost('first', 'iou')}; these two were measured with networks.",
        ]
    )


def _splits(n: int) -> str:
    return f"{n} split{'s' * (n > 1)}"


def _known(gap: Gap | None) -> Gap:
    if gap is None:
        raise SystemExit("the committed results lack a comparison that the README tells")
    return gap


def _judged(gap: Gap, rival: str, *, where: bool) -> str:
    """Say which is better, in words that the interval allows, and where both ran."""
    difference = gap.found.difference
    side = "above" if difference > 0 else "below"
    splits = ", ".join(map(" ".join, zip(gap.sets, map(_splits, gap.found.n_seeds), strict=True)))
    notes = "; ".join(note for note in ("may be chance" * gap.in_doubt, splits * where) if note)
    return f"{abs(difference):.3f} {side} {rival}{f' ({notes})' if notes else ''}"


def _about_one_split(gap: Gap, rival: str) -> str:
    n_alone, n_sets = gap.found.n_seeds.count(1), len(gap.found.n_seeds)
    if n_alone == n_sets:
        return f" The {rival} ran 1 split: images only."
    return f" On {n_alone} of {n_sets} sets the {rival} ran 1 split: images only." if n_alone else ""


def _doubt(gap: Gap) -> str:
    return " (may be chance)" if gap.in_doubt else ""


def parts(results: list[dict[str, Any]]) -> str:
    """Tell what each part is worth: the recipe with a part changed, less the recipe."""
    found = by_set_of(results)
    by_set = {name: found[name] for name in SETS}  # the order, thus the intervals, of ablations.md
    rows = []
    for recipe, variant, title in PARTS:
        gaps = [gap_of(by_set, variant, recipe, n_train) for n_train in (1, 5)]
        rows.append((title, *("" if gap is None else str(gap) for gap in gaps)))
    return markdown_table(("changed part", "1 training image", "5 training images"), rows).rstrip()


def banks(results: list[dict[str, Any]]) -> str:
    """Compare filter banks: difference of mean IoU to the default bank, and object IoU on each set, on the first splits."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in SETS}
    for result in results:
        runs[_set_of(result)] += first_splits(result)
    objects = {name: _object_scores({"runs": found}) for name, found in runs.items()}
    by_set = {name: scores_of({"runs": found}) for name, found in runs.items()}
    default, *_ = BANKS
    header = ("filter bank", "mean IoU, less the default's", *_SHORT_OBJECTS)
    parts = []
    for n_train in (1, 5):
        rows = []
        for method, title in BANKS.items():
            gap = "" if method == default else str(_known(gap_of(by_set, method, default, n_train)))
            cells = [f"{objects[name][method, n_train][0]:.3f}" for name in OBJECTS]
            n_splits = {len({seed for seed, _ in by_set[name][method, n_train]}) for name in OBJECTS}
            note = "" if n_splits == {N_SPLITS} else f" ({' to '.join(map(str, sorted(n_splits)))} splits)"
            rows.append((title + note, gap, *cells))
        heading = f"### With {n_train} training image{'s' if n_train > 1 else ''}"
        parts.append(f"{heading}\n\n{markdown_table(header, rows)}")
    return "\n".join([*parts, f"Means over {N_SPLITS} splits, where no other number is given."])


def draw_learning_curves(results: list[dict[str, Any]], path: Path) -> None:
    """Draw mean IoU against the number of training images on the first splits, a panel for each set."""
    figure = Figure(figsize=(10, 7.2), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True).ravel()
    sizes = sorted({run["n_train"] for result in results for run in result["runs"]})
    plain = {method: TITLES[method].replace("**", "") for method in DRAWN}
    for axes, result in zip(panels, results, strict=True):
        scores = scores_of({"runs": first_splits(result)})
        for index, (method, title) in enumerate(plain.items()):
            curve = [(size, scores[method, size]) for size in sizes if (method, size) in scores]
            if not curve:
                continue
            # side by side, so that intervals do not hide each other
            shift = np.exp(0.03 * (index - len(plain) / 2))
            means = [np.mean(list(run.values())) for _, run in curve]
            intervals = [interval_of(run) for _, run in curve]
            places = [size * shift for size, _ in curve]
            colour = [*COLOURS, "black"][index]
            axes.plot(places, means, color=colour, marker=MARKERS[index], label=title)
            axes.vlines(places, *np.transpose(intervals), color=colour, alpha=0.7)
        axes.set(title=result["name"].removeprefix("segmentation-"), xscale="log", ylabel="mean IoU")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[2:]:
        axes.set_xlabel("training images")
    lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    figure.legend(
        handles=[lines[title] for title in plain.values() if title in lines],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    figure.savefig(path, dpi=105)


def differences(results: list[dict[str, Any]], mine: str) -> str:
    """Of a method to each other one on the runs both have, sets pooled with equal weight."""
    by_set = by_set_of(results)
    rivals = [method for method in TITLES if method != mine]
    rows = []
    for n_train, rival in product(sizes_of(by_set), rivals):
        if (gap := gap_of(by_set, mine, rival, n_train)) is None:
            continue
        means = [np.mean(gaps) for gaps in gap.of_seeds.values() if len(gaps) == len(gap.sets)]
        least_to_greatest = f"{min(means):+.3f} to {max(means):+.3f}" if means else ""
        rows.append(
            (str(n_train), TITLES[rival], str(gap), least_to_greatest, str(len(gap.sets)), str(gap.n_runs))
        )
    header = (
        "training images",
        f"{TITLES[mine].replace('**', '')}, less",
        "mean IoU (95 % interval)",
        "splits, least to greatest",
        "sets",
        "runs",
    )
    return markdown_table(header, rows).rstrip()


def choice(results: list[dict[str, Any]]) -> str:
    """Of the two banks of networks, and of the one taken, on the splits that have all three."""
    lines = [
        "| training images | set | first bank | second bank | taken | better one in hindsight | second taken |",
        "|---|---|---|---|---|---|---|",
    ]
    by_set: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        by_set.setdefault(result["name"].partition("-")[2], []).extend(result["runs"])
    sizes = sorted({run["n_train"] for runs in by_set.values() for run in runs})
    for n_train, (name, runs) in product(sizes, by_set.items()):
        of_size = [run for run in runs if run["n_train"] == n_train]
        scores = scores_of({"runs": of_size})
        means: dict[str, dict[int, float]] = {}
        for (method, _), found in scores.items():
            seeds = {seed for seed, _ in found}
            means[method] = {
                seed: float(np.mean([score for (own, _), score in found.items() if own == seed]))
                for seed in seeds
            }
        first, second, taken = (means.get(method, {}) for method in ("first", "vgg", "segkit-networks"))
        if not (shared := sorted(set(first) & set(second) & set(taken))):
            continue
        titles = {run["seed"]: run["bank"] for run in of_size if run["method"] == "segkit-networks"}
        n_second = sum("squeezenet" not in titles[seed] for seed in shared)
        columns = [[found[seed] for seed in shared] for found in (first, second, taken)]
        columns.append(np.maximum(*columns[:2]).tolist())
        cells = " | ".join(f"{np.mean(column):.3f}" for column in columns)
        lines.append(f"| {n_train} | {name} | {cells} | {n_second} of {len(shared)} |")
    return "\n".join(lines)


def block(results: list[dict[str, Any]]) -> str:
    """Of test images drawn at random, and of the last ones of a volume."""
    lines = ["| set | training images | method | at random | the last ten |", "|---|---|---|---|---|"]
    by_name = {result["name"]: scores_of(result) for result in results}
    for name, block in by_name.items():
        if not name.startswith("last10-"):
            continue
        at_random = by_name[name.replace("last10", "segmentation")]
        for n_train, method in product(sorted({size for _, size in block}), TITLES):
            if (method, n_train) in block:
                cells = " | ".join(_cell(scores[method, n_train]) for scores in (at_random, block))
                lines.append(f"| {name.partition('-')[2]} | {n_train} | {TITLES[method]} | {cells} |")
    return "\n".join(lines)


def _cell(scores: dict[tuple[int, str], float]) -> str:
    """Mean with its interval, and the number of seeds."""
    return f"{mean_of(scores)}, {len({seed for seed, _ in scores})} seeds"


def cost(results: list[dict[str, Any]]) -> str:
    lines = [
        "| method, 5 training images | set | training | one image segmented | peak memory | machine |",
        "|---|---|---|---|---|---|",
    ]
    machines: list[str] = []
    for method, result in product(TITLES, results):
        runs = [run for run in result["runs"] if (run["method"], run["n_train"]) == (method, 5)]
        if not runs:
            continue
        fit, predict = (np.median([run[f"{task}_seconds"] for run in runs]) for task in ("fit", "predict"))
        memory = max(run["peak_memory_mib"] for run in runs) / 1024
        used = [result["machines"][run["machine"]] for run in runs]
        names = [f"{machine['n_cores']} cores of {machine['cpu']}" for machine in used]
        machines += [name for name in dict.fromkeys(names) if name not in machines]
        places = ", ".join(str(1 + machines.index(name)) for name in dict.fromkeys(names))
        lines.append(
            f"| {TITLES[method]} | {result['name'].removeprefix('segmentation-')} "
            f"| {fit:.0f} s | {predict:.1f} s | {memory:.1f} GiB | {places} |"
        )
    told = ", ".join(f"{place}: {name}" for place, name in enumerate(machines, 1))
    return "\n".join(
        [
            *lines,
            "",
            f"Medians over runs, of memory the most, on a machine ({told}) shared with other work, which differed from run "
            "to run: upper bounds, not to be divided by each other.",
        ]
    )


def objects(results: list[dict[str, Any]]) -> str:
    """Make a table of the objects found by each method."""
    header = (
        "set",
        "training images",
        "method",
        "AP at IoU 0.5 (95 % interval)",
        "mean AP",
        "panoptic quality",
        "aggregated Jaccard",
        "count error",
        "splits",
        "AP at 0.5 of the splits",
    )
    rows = []
    for result in results:
        by_size = image_scores_of(result)
        for n_train, method in product(sorted({size for _, size in by_size}), SPLITTINGS):
            found = by_size[method, n_train]
            ap, seeds = found["ap_50"], np.unique(found["seed"])
            interval = bootstrap_interval(ap, found["cluster"], found["seed"])
            of_seeds = [ap[found["seed"] == seed].mean() for seed in seeds]
            rows.append(
                (
                    _set_of(result),
                    str(n_train),
                    SPLITTINGS[method],
                    with_interval(float(ap.mean()), interval) + (", images only" if seeds.size == 1 else ""),
                    *(
                        f"{found[name].mean():.3f}"
                        for name in ("mean_ap", "panoptic_quality", "aggregated_jaccard")
                    ),
                    f"{100 * found['absolute_count_error'].sum() / found['n_true'].sum():.0f} %",
                    str(seeds.size),
                    f"{min(of_seeds):.2f} to {max(of_seeds):.2f}" if seeds.size > 1 else "",
                )
            )
    return markdown_table(header, rows).rstrip()


def objects_differences(results: list[dict[str, Any]]) -> str:
    """Make a table of segkit's AP at IoU 0.5, objects annotated, less that of each other method."""
    others = [method for method in SPLITTINGS if method != "segkit"]
    header = ("set", "training images", *(f"less {SPLITTINGS[method]}" for method in others))
    rows = []
    for result in results:
        by_size = image_scores_of(result)
        for n_train in sorted({size for _, size in by_size}):
            mine = by_size["segkit", n_train]
            gaps = [
                compare(mine["ap_50"], by_size[method, n_train]["ap_50"], mine["cluster"], mine["seed"])
                for method in others
            ]
            rows.append((_set_of(result), str(n_train), *map(difference_of, gaps)))
    return markdown_table(header, rows).rstrip()
