"""Tables of README.md, benchmarks/README.md and pages of docs/, and learning curves, made from the committed results.

python -m benchmarks.readme            write them, docs/learning_curves.png and docs/spread.png
python -m benchmarks.readme --check    fail if they say anything else
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.again import again
from benchmarks.common import RESULTS, difference_of, paired, signed
from benchmarks.drawings import SPREAD, draw_spread, embedding, maps
from benchmarks.effects import attribution
from benchmarks.external import external, first_look
from benchmarks.faults import fuzz, fuzz_images, kills, reproducibility, soak
from benchmarks.fusion import fusion
from benchmarks.mixtures import mixtures
from benchmarks.mutation import mutation
from benchmarks.overview import against_unet, few_runs, headline, sixteen
from benchmarks.promises import alarms, coverage
from benchmarks.regions import regions
from benchmarks.scores import (
    at_five,
    banks,
    block,
    choice,
    cost,
    differences,
    draw_learning_curves,
    findings,
    objects,
    objects_differences,
    parts,
    segmentation,
)
from benchmarks.single_image import single_image
from segkit.evaluation.statistics import compare, compare_pooled

ROOT = Path(__file__).parents[1]
PAGES = tuple(
    ROOT / page
    for page in (
        "README.md",
        "docs/benchmarks.md",
        "docs/banks.md",
        "docs/figures.md",
        "docs/tasks/confidence.md",
        "docs/tasks/stacks.md",
        "docs/trust.md",
        "docs/tasks/large.md",
        "benchmarks/README.md",
    )
)
CURVES = ROOT / "docs" / "learning_curves.png"


def speed(result: dict[str, Any]) -> str:
    """Time beside the forest, of the first code and of the last one that was measured at each size."""
    records = result["records"]
    sides = sorted({record["side"] for record in records})
    lines = [
        "| recipe | set | channels | " + " | ".join(f"{side:,} x {side:,}" for side in sides) + " | growth |",
        "|---|---|---|" + "---|" * (len(sides) + 1),
    ]
    for key in dict.fromkeys((record["recipe"], record["set"], record["n_channels"]) for record in records):
        own = [record for record in records if (record["recipe"], record["set"], record["n_channels"]) == key]
        ratios = [
            first_to_last([one["processor"]["ratio"] for one in own if one["side"] == side]) for side in sides
        ]
        exponents = [
            exponent
            for code in dict.fromkeys(one["code"] for one in own)
            if (
                exponent := growth(
                    {one["side"]: one["processor"]["seconds"] for one in own if one["code"] == code}
                )
            )
        ]
        lines.append(f"| {' | '.join(map(str, key))} | {' | '.join(ratios)} | {first_to_last(exponents)} |")
    return "\n".join(lines)


def first_to_last(numbers: list[float]) -> str:
    """Say the first number and the last one; there may be one, or none."""
    return " to ".join(f"{number:.2f}" for number in dict.fromkeys(numbers[:1] + numbers[-1:]))


def growth(seconds: dict[int, float]) -> float | None:
    """Exponent of the growth of seconds with the number of pixels: the slope of a line through the logarithms."""
    if len(seconds) < 2:
        return None
    return float(np.polyfit(2 * np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])


def speed_parts(result: dict[str, Any]) -> str:
    """Parts of the default recipe on images of 512 x 512, of the first code of the file and of the last one."""
    records = [
        record
        for record in result["records"]
        if record["recipe"] == "default" and record["side"] == 512 and record["parts"]
    ]
    first, *_, last = dict.fromkeys(record["code"] for record in records)
    kinds = dict.fromkeys((record["set"], record["n_channels"]) for record in records)
    lines = [
        "| part | " + " | ".join(f"{name}, channels: {n}" for name, n in kinds) + " |",
        "|---|" + "---|" * len(kinds),
    ]
    found = {(record["code"], record["set"], record["n_channels"]): record for record in records}
    parts = dict.fromkeys(part for record in records for part in record["parts"])
    for part in sorted(parts, key=lambda part: -records[-1]["parts"].get(part, 0)):
        cells = []
        for kind in kinds:
            of = [found[code, *kind] for code in (first, last) if (code, *kind) in found]
            times = " to ".join(f"{1e3 * record['parts'].get(part, 0):.0f}" for record in of)
            cells.append(f"{times} ({1e3 * of[-1]['limits'].get(part, 0):.1f})")
        lines.append(f"| {part} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fast(result: dict[str, Any]) -> str:
    """Price of `segkit train --fast`."""
    lines = [
        "| set | mean IoU, default | mean IoU, `--fast` | difference, by seed | processor time, times the default |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(record["set"] for record in result["records"]):
        own = [record for record in result["records"] if record["set"] == name]
        means = {
            recipe: [float(np.mean(record[recipe]["mean_iou"])) for record in own]
            for recipe in ("default", "fast")
        }
        ratios = np.concatenate(
            [np.divide(record["fast"]["seconds"], record["default"]["seconds"]) for record in own]
        )
        differences = ", ".join(f"{b - a:+.3f}" for a, b in zip(*means.values(), strict=True))
        lines.append(
            f"| {name} | {np.mean(means['default']):.3f} | {np.mean(means['fast']):.3f} | {differences} "
            f"| {np.median(ratios):.2f} |"
        )
    return "\n".join(lines)


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


GIGAPIXELS, N_SLIDES = 10, 10_000


def scale(result: dict[str, Any]) -> str:
    speed, killed, at_once, spread = (
        result["speed"],
        result["killed"],
        *(result["scheduler"][name] for name in ("at_once", "spread")),
    )
    loads = speed["load_before"]
    equal = "equal, byte for byte" if speed["equal"] else "NOT equal"
    return "\n".join(
        [
            "| measured | value |",
            "|---|---|",
            f"| two workers of one thread against one, {result['images']} images of {result['side']} x {result['side']} "
            f"| {speed['ratio']:.2f} times as fast ({min(speed['ratios']):.2f} to {max(speed['ratios']):.2f}) |",
            f"| {speed['files']} files of workers, and those of one process | {equal} |",
            f"| a worker killed in the middle of an image | {killed['equal']} of {killed['kills']} folders equal |",
            f"| one thread, on {result['tile']['side']:,} x {result['tile']['side']:,} pixels "
            f"| {_rate(result) / 1e6:.2f} million pixels a second of processor time |",
            f"| the record of an image, by the program that you started | {1000 * speed['put_seconds']:.0f} ms |",
            f"| {at_once['tasks']:,} tiny tasks given at once | {at_once['tasks_per_second']:,.0f} a second, "
            f"{at_once['bytes_per_task'] / 1000:.1f} kB each in the scheduler |",
            f"| {spread['tasks']:,} tiny tasks given as segkit does, a few at a time "
            f"| {spread['tasks_per_second']:,.0f} a second, {spread['memory_mib_most'] - spread['memory_mib_before']:.0f} "
            "MiB more in the scheduler |",
            "",
            f"Default recipe. {len(speed['ratios'])} pairs of runs in turn; the machine of 2 cores had other work (load "
            f"{min(loads):.1f} to {max(loads):.1f} before each pair).",
        ]
    )


def scale_plan(result: dict[str, Any]) -> str:
    hours = 1e9 / _rate(result) / 3600
    side, tile_seconds = result["tile"]["side"], result["tile"]["processor_seconds"]
    n_tiles = GIGAPIXELS * 1e9 / side**2
    at_once, spread = (result["scheduler"][name] for name in ("at_once", "spread"))
    per_second, puts = spread["tasks_per_second"], 1 / result["speed"]["put_seconds"]
    of_slide, of_all = GIGAPIXELS * hours, GIGAPIXELS * hours * N_SLIDES
    gigabytes = n_tiles * at_once["bytes_per_task"] / 1e9
    return "\n".join(
        [
            f"| | a slide of {GIGAPIXELS} gigapixels | {N_SLIDES:,} such slides |",
            "|---|---|---|",
            f"| core hours ({hours:.1f} for a gigapixel) | {of_slide:,.0f} | {of_all:,.0f} |",
            *(
                f"| on {n:,} workers | {60 * of_slide / n:,.0f} minutes | {of_all / n / 24:,.0f} days |"
                for n in (16, 128, 1024)
            ),
            f"| tiles of {side:,} x {side:,} | {n_tiles:,.0f} | {n_tiles * N_SLIDES:,.0f} |",
            f"| scheduler's memory, all tiles given at once | {gigabytes:.2f} GB | {gigabytes * N_SLIDES:,.0f} GB |",
            f"| the same, a few at a time | {spread['memory_mib_most']:.0f} MiB | {spread['memory_mib_most']:.0f} MiB |",
            "",
            f"A tile takes a worker {tile_seconds:.1f} s. One program gives out and takes back at most {per_second:,.0f} "
            f"tasks a second, enough for {per_second * tile_seconds:,.0f} workers. It records {puts:,.0f} images a second, "
            f"enough for {puts * tile_seconds:,.0f} workers if an image is as large as a tile.",
        ]
    )


def _rate(result: dict[str, Any]) -> float:
    """Pixels of a tile a second of processor time, on one thread."""
    return float(result["tile"]["side"] ** 2 / result["tile"]["processor_seconds"])


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
                    *((scores[way], scores[usual], *key) for key, scores in _of_set(records, name)),
                    strict=True,
                )
            )
            for name in sets
        ]
        cells = [f"{np.mean(mine) - np.mean(usually):+.3f}" for mine, usually, *_ in pairs]
        lines.append(f"| {way} | {' | '.join(cells)} | {difference_of(compare_pooled(pairs))} |")
    n_seeds = len({record["seed"] for record in records})
    return "\n".join([*lines, "", f"{records[0]['n_train']} training images, {n_seeds} seeds, scattering."])


def _of_set(records: list[dict[str, Any]], name: str) -> list[tuple[tuple[str, int], dict[str, float]]]:
    """Give the scores of each image and seed of a set."""
    return [
        ((image, record["seed"]), scores)
        for record in records
        if record["set"] == name
        for image, scores in record["mean_iou"].items()
    ]


# How the next image is chosen.
NEXT_IMAGE = {"random": "at random", "advice": "advised", "typical": "most typical"}


def advice(result: dict[str, Any]) -> str:
    draws_of = _by_set(result["draws"])
    lines = [
        "| next image | images annotated | " + " | ".join(draws_of) + " | all, with equal weight |",
        "|---|---|" + "---|" * (len(draws_of) + 1),
    ]
    for way in ("advice", "typical"):
        for place in range(1, _most(result["draws"])):
            pairs = [_paired(draws, way, place) for draws in draws_of.values()]
            found = [compare_pooled([pair]) for pair in pairs] + [compare_pooled(pairs)]
            cells = " | ".join(signed(one.difference, one.interval) for one in found)
            lines.append(f"| {NEXT_IMAGE[way]} | {place + 1} | {cells} |")
    n_draws = " or ".join(str(n) for n in sorted({len(draws) for draws in draws_of.values()}))
    return "\n".join(
        [
            *lines,
            "",
            f"Mean IoU less that with random images, 95 % interval over {n_draws} draws of each set.",
        ]
    )


def advice_scores(result: dict[str, Any]) -> str:
    most = _most(result["draws"])
    lines = [
        "| set | next image | " + " | ".join(f"{n} image{'s' * (n > 1)}" for n in range(1, most + 1)) + " |",
        "|---|---|" + "---|" * most,
    ]
    for name, draws in _by_set(result["draws"]).items():
        for way, title in NEXT_IMAGE.items():
            means = np.mean([draw[way]["mean_iou"] for draw in draws], axis=0)
            lines.append(f"| {name} | {title} | {' | '.join(f'{mean:.3f}' for mean in means)} |")
    return "\n".join([*lines, "", _agreement(result["checks"]), _time_of_advice(result["draws"])])


def _agreement(checks: list[dict[str, Any]]) -> str:
    """Say how far scores on the grid agree with those of every pixel."""
    whole, grid = (
        np.array([[check[kind][way] for way in ("advice", "random")] for check in checks])
        for kind in ("every_pixel", "grid")
    )
    off, gains = whole - grid, [np.subtract(*scores.T) for scores in (whole, grid)]
    correlations = [np.corrcoef(*pair)[0, 1] for pair in ((whole.ravel(), grid.ravel()), gains)]
    return (
        f"{off.size} of the last models were also trained and scored with every pixel and all defaults. Their mean IoU "
        f"is {off.mean():+.3f} off that on the grid ({off.min():+.3f} to {off.max():+.3f}), correlation "
        f"{correlations[0]:.2f}. Advised less random is {gains[0].mean():+.3f} with every pixel and "
        f"{gains[1].mean():+.3f} on the grid, correlation {correlations[1]:.2f}."
    )


def _time_of_advice(draws: list[dict[str, Any]]) -> str:
    ratios = [
        np.sum(draw["advice"]["advise_seconds"]) / np.sum(draw["advice"]["fit_seconds"][:-1])
        for draw in draws
    ]
    return f"Ranking the pool takes {np.median(ratios):.2f} times as long as training on the grid (median)."


def _most(draws: list[dict[str, Any]]) -> int:
    return min(len(draw["advice"]["images"]) for draw in draws)


def _by_set(draws: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names = dict.fromkeys(draw["set"] for draw in sorted(draws, key=lambda draw: draw["set"]))
    return {name: [draw for draw in draws if draw["set"] == name] for name in names}


def _paired(draws: list[dict[str, Any]], way: str, place: int) -> tuple[list[float], list[float], None, None]:
    """Pair the means of draws; each draw is of other images, all of them resampled together."""
    mine, at_random = ([draw[name]["mean_iou"][place] for draw in draws] for name in (way, "random"))
    return mine, at_random, None, None


def annotate_speed(result: dict[str, Any]) -> str:
    titles = {"default": "default, no weights", "networks": "VGG19 and SqueezeNet"}
    lines = [
        "| recipe | first features | coarse prediction | fine prediction | script time of a frame |",
        "|---|---|---|---|---|",
    ]
    for name, row in result["recipes"].items():
        coarse, fine, frame = (row[key] for key in ("coarse_ms", "fine_ms", "frame_ms"))
        lines.append(
            f"| {titles[name]} | {row['first_features_s']:.1f} s | {coarse['p50'] / 1000:.2f} s "
            f"({coarse['p95'] / 1000:.2f} s) | {fine['p50'] / 1000:.2f} s ({fine['p95'] / 1000:.2f} s) | "
            f"{frame['p50']:.1f} ms ({frame['p95']:.1f} ms) |"
        )
    side, n_strokes = result["side"], min(row["n_strokes"] for row in result["recipes"].values())
    return "\n".join(
        [
            *lines,
            "",
            f"Medians (95th percentiles) of {n_strokes} strokes and more on a picture of {side:,} x {side:,} RGB pixels, "
            "all of it visible, in headless Chromium on the same 2 cores, from the end of the stroke to the frame that "
            "shows it. "
            f"A 2,048 x 2,048 float32 product took {result['sgemm_ms']:.0f} ms in the same run.",
        ]
    )


def strokes(result: dict[str, Any]) -> str:
    lines = [
        '| set | hand | labelled | whole masks | strokes | difference | after "Looks right" | difference |',
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["set"] for row in result["rows"]):
        for hand in dict.fromkeys(row["hand"] for row in result["rows"]):
            rows = [row for row in result["rows"] if (row["set"], row["hand"]) == (name, hand)]
            if not rows:
                continue
            whole, drawn, accepted = (
                np.array([row[key] for row in rows]) for key in ("whole", "strokes", "accepted")
            )
            labelled = np.mean([row["labelled"] for row in rows])
            lines.append(
                f"| {name} | {hand} | {100 * labelled:.0f} % | {whole.mean():.3f} | {drawn.mean():.3f} | "
                f"{_spread(drawn - whole)} | {accepted.mean():.3f} | {_spread(accepted - whole)} |"
            )
    n_seeds = len({row["seed"] for row in result["rows"]})
    return "\n".join(
        [
            *lines,
            "",
            f"Mean IoU on the test images of the protocol, {n_seeds} splits, three training images; in brackets the least "
            f"and the greatest difference of a split. {result['n_strokes']} strokes on all three images together.",
        ]
    )


def planes(result: dict[str, Any]) -> str:
    """IoU of each way by set and number of annotated planes, and how far 3-D and 2.5-D are from 2-D."""
    ways = list(dict.fromkeys(run["way"] for run in result["runs"]))
    found: dict[tuple[str, int, str], dict[tuple[int, str], float]] = {}
    for run in result["runs"]:
        iou = {(run["seed"], str(plane)): iou for plane, iou in zip(run["tested"], run["iou"], strict=True)}
        found.setdefault((run["set"], run["n_annotated"], run["way"]), {}).update(iou)
    lines = [
        f"| volume | annotated planes | {' | '.join(ways)} | {' | '.join(f'{way}, less 2-D' for way in ways[1:])} |",
        f"| {' | '.join(['---'] * (1 + 2 * len(ways)))} |",
    ]
    drawn: list[int] = []
    for name, n_annotated in dict.fromkeys(key[:2] for key in found):
        by_way = [found.get((name, n_annotated, way), {}) for way in ways]
        of_all = set.intersection(*(set(scores) for scores in by_way))
        if not of_all:
            continue
        usual, *others = [{key: scores[key] for key in sorted(of_all)} for scores in by_way]
        cells = [f"{np.mean(list(scores.values())):.3f}" for scores in (usual, *others)]
        cells += [difference_of(compare(*paired(scores, usual))) for scores in others]
        lines.append(f"| {name} | {n_annotated} | {' | '.join(cells)} |")
        drawn.append(len({seed for seed, _ in of_all}))
    n_draws = " to ".join(map(str, dict.fromkeys((min(drawn), max(drawn)))))
    n_tested = max(len(run["tested"]) for run in result["runs"])
    seconds = ", ".join(
        f"{way} {np.median([run['predict_seconds'] for run in result['runs'] if run['way'] == way]):.2f} s"
        for way in ways
    )
    return "\n".join(
        [
            *lines,
            "",
            f"IoU of the object on {n_tested} planes that are not annotated, mean of {n_draws} draws of annotated planes; "
            f"in brackets 95 % intervals over draws and planes. Planes are halved to 256 x 256, and all ways "
            f"have the blurs of 1 to 16 pixels of the multiscale bank. 3-D filters see 4 planes on either side. Median "
            f"seconds to segment a plane, by one thread of a busy machine: {seconds}.",
        ]
    )


def _spread(differences: np.ndarray) -> str:
    return f"{differences.mean():+.3f} ({differences.min():+.3f} to {differences.max():+.3f})"


_ALL_SETS = "segmentation-*.json first-look/*.json external-458efc0.json"
# Of each table a file, or all that match one of several patterns.
TABLES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "at_five": ("segmentation-*.json", at_five),
    "findings": ("*ation*-*.json", findings),
    "segmentation": ("segmentation-*.json", segmentation),
    "banks": ("*ation*-*.json", banks),
    "sixteen": (_ALL_SETS, sixteen),
    "headline": ("segmentation-*.json", headline),
    "against_unet": ("segmentation-*.json", against_unet),
    "few_runs": (_ALL_SETS, few_runs),
    "parts": ("*ation*-*.json", parts),
    "attribution": ("attribution.json", attribution),
    "mixtures": ("mixtures.json", mixtures),
    "mutation": ("mutation.json", mutation),
    "differences": ("segmentation-*.json", partial(differences, mine="segkit-networks")),
    "default_differences": ("segmentation-*.json", partial(differences, mine="segkit-no-networks")),
    "choice": ("*ation*-*.json", choice),
    "block": ("[ls]*-*.json", block),
    "external": ("external-*.json", external),
    "first_look": ("first-look/*.json", first_look),
    "fusion": ("fusion-*.json", fusion),
    "again": ("again.json", again),
    "single_image": ("single_image.json", single_image),
    "regions": ("regions.json", regions),
    "objects": ("objects-*.json", objects),
    "objects_differences": ("objects-*.json", objects_differences),
    "cost": ("segmentation-*.json", cost),
    "scale": ("scale.json", scale),
    "scale_plan": ("scale.json", scale_plan),
    "speed": ("speed.json", speed),
    "speed_parts": ("speed.json", speed_parts),
    "fast": ("fast.json", fast),
    "embedding": ("figures.json", embedding),
    "maps": ("figures.json", maps),
    "large_images": ("large_images.json", large_images),
    "postprocessing": ("postprocessing.json", postprocessing),
    "advice": ("advice.json", advice),
    "advice_scores": ("advice.json", advice_scores),
    "annotate": ("annotate.json", annotate_speed),
    "strokes": ("strokes.json", strokes),
    "planes": ("planes.json", planes),
    "coverage": ("coverage.json", coverage),
    "alarms": ("coverage.json", alarms),
    "kills": ("kills.json", kills),
    "fuzz": ("fuzz-*.json", fuzz),
    "fuzz_images": ("fuzz_images.json", fuzz_images),
    "soak": ("soak.json", soak),
    "reproducibility": ("reproducibility.json", reproducibility),
}


def list_files(patterns: str) -> list[Path]:
    """List the result files that match one of several patterns, parted by blanks."""
    return [path for pattern in patterns.split() for path in sorted(RESULTS.glob(pattern))]


def read(patterns: str) -> list[dict[str, Any]]:
    """Read the result files that match one of several patterns."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in list_files(patterns)]


def render(texts: list[str]) -> list[str]:
    """Make every table anew, each in the page that has a place for it."""
    for name, (file, table) in TABLES.items():
        results = read(file)
        body = table(results if "*" in file else results[0])
        place = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if sum(len(place.findall(text)) for text in texts) != 1:
            raise SystemExit(f"table {name}: give it one place in {', '.join(_names())}")
        # a function, for a backslash in the body is none of re's
        texts = [place.sub(lambda match, body=body: f"{match[1]}{body}\n{match[2]}", text) for text in texts]
    return texts


def _names() -> list[str]:
    return [page.relative_to(ROOT).as_posix() for page in PAGES]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.check:
        draw_learning_curves(read("segmentation-*.json"), CURVES)
        draw_spread(read("segmentation-*.json"), ROOT / "docs" / SPREAD)
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    for page, text, rendered in zip(PAGES, texts, render(texts), strict=True):
        if not arguments.check:
            page.write_text(rendered, encoding="utf-8")
        elif rendered != text:
            raise SystemExit(f"{page} does not show the committed results: run python -m benchmarks.readme")


if __name__ == "__main__":
    main()
