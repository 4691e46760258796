"""Tables of README.md and benchmarks/README.md, and learning curves, made from the committed result files.

python -m benchmarks.readme            write them, and docs/learning_curves.png
python -m benchmarks.readme --check    fail if they say anything else
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.common import RESULTS, signed, with_interval
from benchmarks.segmentation import scores_of
from segkit.evaluation.statistics import bootstrap_interval, compare_pooled
from segkit.report.figures import COLOURS, MARKERS

BENCHMARKS = Path(__file__).parent
PAGES = (BENCHMARKS.parent / "README.md", BENCHMARKS / "README.md")
CURVES = BENCHMARKS.parent / "docs" / "learning_curves.png"
TITLES = {
    "segkit-networks": "**segkit**, VGG19 and SqueezeNet",
    "segkit-scattering": "**segkit**, scattering (no weights)",
    "segkit-paper": "recipe of the paper, VGG19 to conv3_4",
    "forest": "pixel forest",
    "convpaint": "pixel forest on three layers, as convpaint's (VGG19)",
    "convpaint-default": "pixel forest on one layer, convpaint's default (VGG19)",
    "fcn": "FCN-8s on SqueezeNet, pre-trained",
    "fcn-vgg19": "FCN-8s on VGG19 to conv3_4, pre-trained",
    "fcn-scratch": "FCN-8s on SqueezeNet, from scratch",
    "unet": "U-Net",
}


def segmentation(results: list[dict[str, Any]]) -> str:
    sets = [result["name"].removeprefix("segmentation-") for result in results]
    cells = {}
    for result, name in zip(results, sets, strict=True):
        for (method, n_train), scores in scores_of(result).items():
            low, high = bootstrap_interval(list(scores.values()), [image for _, image in scores])
            of_seeds: dict[int, list[float]] = {}
            for (seed, _), score in scores.items():
                of_seeds.setdefault(seed, []).append(score)
            means, n_seeds = [np.mean(found) for found in of_seeds.values()], len(of_seeds)
            seeds = f"{n_seeds} seeds, {min(means):.2f} to {max(means):.2f}" if n_seeds > 1 else "1 seed"
            runs = [run for run in result["runs"] if (run["method"], run["n_train"]) == (method, n_train)]
            if limited := sum(bool(run["budget_limited"]) for run in runs):
                seeds += ", budget-limited" if limited == n_seeds else f", {limited} budget-limited"
            cells[n_train, method, name] = (
                f"{np.mean(list(scores.values())):.3f} ({low:.3f} to {high:.3f}; {seeds})"
            )
    lines = ["| training images | method | " + " | ".join(sets) + " |", "|---|---|" + "---|" * len(sets)]
    lines += [
        f"| {n_train} | {title} | "
        + " | ".join(cells.get((n_train, method, name), "") for name in sets)
        + " |"
        for n_train in sorted({n_train for n_train, _, _ in cells})
        for method, title in TITLES.items()
        if any((n_train, method, name) in cells for name in sets)
    ]
    return "\n".join(lines)


def draw_learning_curves(results: list[dict[str, Any]], path: Path) -> None:
    """Draw mean IoU against the number of training images, a panel for each set."""
    figure = Figure(figsize=(10, 7.2), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True).ravel()
    sizes = sorted({run["n_train"] for result in results for run in result["runs"]})
    # the weaker of convpaint's settings would stretch the scale
    plain = {
        method: title.replace("**", "") for method, title in TITLES.items() if method != "convpaint-default"
    }
    for axes, result in zip(panels, results, strict=True):
        scores = scores_of(result)
        for index, (method, title) in enumerate(plain.items()):
            curve = [(size, scores[method, size]) for size in sizes if (method, size) in scores]
            if not curve:
                continue
            # side by side, so that intervals do not hide each other
            shift = np.exp(0.03 * (index - len(plain) / 2))
            means = [np.mean(list(run.values())) for _, run in curve]
            intervals = [
                bootstrap_interval(list(run.values()), [image for _, image in run]) for _, run in curve
            ]
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
    figure.savefig(path, dpi=110)


def differences(results: list[dict[str, Any]]) -> str:
    """Of segkit to each rival on the runs both have, sets pooled with equal weight."""
    lines = [
        "| training images | segkit (VGG19 and SqueezeNet) less | mean IoU (95 % interval) | seeds, least to greatest "
        "| sets | runs |",
        "|---|---|---|---|---|---|",
    ]
    by_set = {result["name"]: scores_of(result) for result in results}
    sizes = sorted({size for scores in by_set.values() for _, size in scores})
    for n_train, rival in product(sizes, list(TITLES)[1:]):
        mine, theirs = (
            {name: scores[method, n_train] for name, scores in by_set.items() if (method, n_train) in scores}
            for method in ("segkit-networks", rival)
        )
        shared = {name: sorted(set(mine[name]) & set(theirs[name])) for name in mine if name in theirs}
        pairs = [
            (
                [mine[name][key] for key in keys],
                [theirs[name][key] for key in keys],
                [image for _, image in keys],
            )
            for name, keys in shared.items()
            if keys
        ]
        if pairs:
            found = compare_pooled(pairs)
            of_seeds: dict[int, list[float]] = {}
            for name, keys in shared.items():
                for seed in {seed for seed, _ in keys}:
                    own = [key for key in keys if key[0] == seed]
                    gap = np.mean([mine[name][key] - theirs[name][key] for key in own])
                    of_seeds.setdefault(seed, []).append(float(gap))
            means, n_runs = [np.mean(gaps) for gaps in of_seeds.values()], sum(map(len, of_seeds.values()))
            lines.append(
                f"| {n_train} | {TITLES[rival]} | {signed(found.difference, found.interval)} "
                f"| {min(means):+.3f} to {max(means):+.3f} | {len(pairs)} | {n_runs} |"
            )
    return "\n".join(lines)


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
    values, images = list(scores.values()), [image for _, image in scores]
    told = with_interval(float(np.mean(values)), bootstrap_interval(values, images))
    return f"{told}, {len({seed for seed, _ in scores})} seeds"


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


def predict_speed(result: dict[str, Any]) -> str:
    low, high = result["ratio_range"]
    return (
        f"With the recipe of the paper, segmenting one 256 x 256 image with VGG19 to conv3_4 "
        f"({result['kept_channels']} channels kept, "
        f"{result['n_components']:,} random features) takes **{result['ratio_to_arithmetic']:.1f} times** "
        f"({low:.1f} to {high:.1f}) what its {sum(result['gflops'].values()):.0f} GFLOP would take at the rate of a "
        f"float32 matrix product in the same run."
    )


def large_images(result: dict[str, Any]) -> str:
    sides = [square["side"] for square in result["records"][0]["squares"]]
    lines = [
        "| recipe | " + " | ".join(f"{side:,} x {side:,}" for side in sides) + " | labels changed by tiles |",
        "|---|" + "---|" * (len(sides) + 1),
    ]
    for record in result["records"]:
        cells = [
            f"{square['peak_memory_mib'] / 1024:.1f} GiB, {square['ratio']:.1f}"
            for square in record["squares"]
        ]
        changed = record["tiles"]["share_of_labels_changed"]
        lines.append(f"| {record['recipe']} | {' | '.join(cells)} | {100 * changed:.4f} % |")
    side = result["records"][0]["tiles"]["side"]
    return "\n".join(
        [
            *lines,
            "",
            "Most memory that the process held, libraries included, and time, as a multiple of what as many pixels take in "
            "pictures of 256 x 256 (scattering builds its filters when it first meets a size of tile, which tells most on "
            "the smallest). Labels with tiles and without, at the threshold of training, are compared on "
            f"{side:,} x {side:,} pixels.",
        ]
    )


def bandwidths(result: dict[str, Any]) -> str:
    lines = [
        "| features | threshold | cross-validation | MMD | mixture by MMD | MMD less cross-validation (95 % interval) "
        "| times faster |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["summary"]:
        if row["set"] == "all" and row["n_train"] == "all":
            iou, gap, (least, most) = row["mean_iou"], row["gap_to_cv"]["mmd"], row["time_ratio_range"]
            lines.append(
                f"| {row['grid']} | {row['threshold']} | {iou['cv']:.3f} | {iou['mmd']:.3f} | {iou['mixture']:.3f} "
                f"| {signed(gap['value'], gap['interval'])} "
                f"| {row['time_ratio']:.0f} ({least:.0f} to {most:.0f}) |"
            )
    n_seeds = len({record["seed"] for record in result["records"]})
    sets = sorted({record["set"] for record in result["records"]})
    return "\n".join(
        [*lines, "", f"{' and '.join(sets)}, VGG19 and scattering, 5 and 15 images, {n_seeds} seeds."]
    )


def asu(result: dict[str, Any]) -> str:
    lines = [
        "| set | splits | cross-validation | MMD | mixture by MMD | MMD less cross-validation (95 % interval) "
        "| mixture less cross-validation | times faster |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["summary"]:
        if (row["penalty"], row["n_features"]) == ("C = 1", "all"):
            accuracies = " | ".join(f"{found['value']:.3f}" for found in row["accuracy"].values())
            gaps = " | ".join(signed(gap["value"], gap["interval"]) for gap in row["gap_to_cv"].values())
            lines.append(
                f"| {row['set']} | {row['n_splits']} | {accuracies} | {gaps} | {row['time_ratio']:.0f} |"
            )
    return "\n".join(lines)


def recipe_speed(result: dict[str, Any]) -> str:
    lines = [
        "| method | set (pixels) | training, wall | training, processor | segmenting one image, wall, times the forest "
        "| the same, processor |",
        "|---|---|---|---|---|---|",
    ]
    for record in result["records"]:
        shape = " x ".join(map(str, record["shape"]))
        for method, seconds in record["fit"].items():
            found = record["predict_ratio"].get(method, {})
            times = [
                f"{np.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
                if (ratios := found.get(kind))
                else "1"
                for kind in ("wall", "processor")
            ]
            lines.append(
                f"| {TITLES[method]} | {record['set']} ({shape}) | {seconds['wall']:.0f} s "
                f"| {seconds['processor']:.0f} s | {' | '.join(times)} |"
            )
    return "\n".join(lines)


def postprocessing(result: dict[str, Any]) -> str:
    records = result["records"]
    sets = list(dict.fromkeys(record["set"] for record in records))
    usual, *ways = next(iter(records[0]["mean_iou"].values()))
    lines = [
        "| decisions | " + " | ".join(sets) + " | all, with equal weight (95 % interval) |",
        "|---|" + "---|" * (len(sets) + 1),
    ]
    for way in ways:
        pairs = [
            tuple(
                zip(
                    *((scores[way], scores[usual], image) for image, scores in _of_set(records, name)),
                    strict=True,
                )
            )
            for name in sets
        ]
        cells = [f"{np.mean(mine) - np.mean(usually):+.3f}" for mine, usually, _ in pairs]
        pooled = compare_pooled(pairs)
        lines.append(f"| {way} | {' | '.join(cells)} | {signed(pooled.difference, pooled.interval)} |")
    n_seeds = len({record["seed"] for record in records})
    return "\n".join([*lines, "", f"{records[0]['n_train']} training images, {n_seeds} seeds, scattering."])


def _of_set(records: list[dict[str, Any]], name: str) -> list[tuple[str, dict[str, float]]]:
    return [pair for record in records if record["set"] == name for pair in record["mean_iou"].items()]


def demo(result: dict[str, Any]) -> str:
    low, high = result["interval"]
    return (
        f"On the demo's ten test pictures: mean IoU {result['mean_iou']:.3f} (95 % interval {low:.3f} to {high:.3f}), "
        f"lesions alone {result['classes'][1]['iou']:.3f}."
    )


def few_digits(result: dict[str, Any]) -> str:
    digits = [row for row in result["rows"] if row["settings"]["data"] == "digits"]
    sizes = sorted({row["settings"]["training images"] for row in digits})
    lines = [
        "| test accuracy on 10,000 MNIST digits (the paper's) | "
        + " | ".join(f"{size} training images" for size in sizes)
        + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for method in dict.fromkeys(row["settings"]["method"] for row in digits):
        cells = []
        for row in digits:
            if row["settings"]["method"] == method:
                measured = "" if row["value"] is None else f"{row['value']:.2f}"
                paper = "" if row["paper"] is None else f" ({row['paper']:.2f})"
                cells.append((measured + paper).strip())
        name = "**ours, chosen by cross-validation**" if method == "ours" else method
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def orbit_segmentation(result: dict[str, Any]) -> str:
    angles = [turn["angle"] for turn in result["records"][0]["turns"]]
    lines = [
        "| set | features | mean IoU (95 % interval) | "
        + " | ".join(f"labels changed by a turn of {angle:g}° | IoU of the two maps" for angle in angles)
        + " | changed by quarter turns and reflections |",
        "|---|---|---|" + "---|---|" * len(angles) + "---|",
    ]
    for record in result["records"]:
        turns = [
            f"{turn['changed_percent']:.2f} % | {turn['foreground_iou']:.3f}" for turn in record["turns"]
        ]
        symmetries = record["symmetries"]
        lines.append(
            f"| {record['set']} | {record['method']} | {with_interval(record['mean_iou'], record['interval'])} "
            f"| {' | '.join(turns)} "
            f"| {100 * symmetries['changed'] / symmetries['pixels']:.2f} % |"
        )
    return "\n".join(lines)


# A file, or all that match a pattern.
TABLES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "segmentation": ("segmentation-*.json", segmentation),
    "differences": ("segmentation-*.json", differences),
    "choice": ("*ation*-*.json", choice),
    "block": ("[ls]*-*.json", block),
    "cost": ("segmentation-*.json", cost),
    "predict_speed": ("predict_speed.json", predict_speed),
    "large_images": ("large_images.json", large_images),
    "bandwidths": ("bandwidths.json", bandwidths),
    "asu": ("asu.json", asu),
    "recipe_speed": ("recipe_speed.json", recipe_speed),
    "postprocessing": ("postprocessing.json", postprocessing),
    "demo": ("demo.json", demo),
    "few_digits": ("003-table2.json", few_digits),
    "orbit_segmentation": ("orbit_segmentation.json", orbit_segmentation),
}


def read(pattern: str) -> list[dict[str, Any]]:
    """Read the result files of a name, or of a pattern."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob(pattern))]


def render(texts: list[str]) -> list[str]:
    """Make every table anew, each in the page that has a place for it."""
    for name, (file, table) in TABLES.items():
        results = read(file)
        body = table(results if "*" in file else results[0])
        place = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if sum(len(place.findall(text)) for text in texts) != 1:
            raise SystemExit(f"table {name}: give it one place, in README.md or benchmarks/README.md")
        # a function, for a backslash in the body is none of re's
        texts = [place.sub(lambda match, body=body: f"{match[1]}{body}\n{match[2]}", text) for text in texts]
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.check:
        draw_learning_curves(read("segmentation-*.json"), CURVES)
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    for page, text, rendered in zip(PAGES, texts, render(texts), strict=True):
        if not arguments.check:
            page.write_text(rendered, encoding="utf-8")
        elif rendered != text:
            raise SystemExit(f"{page} does not show the committed results: run python -m benchmarks.readme")


if __name__ == "__main__":
    main()
