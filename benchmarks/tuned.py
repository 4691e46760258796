"""Networks trained on the images: what the kernel machine, fixed filters, scales and symmetries are worth beside them.

    python -m benchmarks tuned --data DATA --weights WEIGHTS [--sets ...] [--seeds N] [--train-sizes ...]
        [--work WORK] [--device auto|cpu|cuda] [--long]

DATA holds a folder for each set with images/, masks/ and, where images belong together, groups.csv; WEIGHTS holds those of
MobileNetV2. With --work networks are kept: a run that was cut goes on, and one for other ways trains none. With --long the
networks are those of `configs/tuned-long.yaml`.

Splits are those of `segkit benchmark`. In a split the networks of `configs/tuned.yaml` are trained once, and all ways to use
them (`WAYS`) are tested on the same maps. A row holds of each way and test image the pixels by truth and prediction, row by
row. It also holds the object IoU that the model expected of each image, with its 80 % interval, and which of both banks of
the recipe held-out images chose. With five images and seed 2 the seconds to segment the test images are measured beside
those of a pixel forest, on one thread.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.comparisons import KINDS, NETWORKS, SIZES, SPREAD_SIZES, gap_of, shared_by
from benchmarks.markdown import broken, markdown_table
from benchmarks.rows import Row, Study, read
from benchmarks.segmentation import LABELS, Scores, score_of, scores_of, write_made_up
from segkit._common import FloatArray
from segkit._common.device import device
from segkit.baselines import PixelForest
from segkit.benchmark import few_shot_split
from segkit.benchmark.protocol import read_groups
from segkit.config import Config, shipped
from segkit.evaluation.metrics import confusion
from segkit.features import TunedBank
from segkit.images import Dataset, load_pairs
from segkit.segmentation.segmenter import Segmenter

SETS = (*KINDS["development"], *KINDS["first look"])
LONG = "tuned-long"
TIMED = (2, max(SIZES))
WAYS = {
    "recipe": "**`--config tuned`**: what does best held out",
    "learnt": "logits and multiscale filters, kernel machine",
    "filters": "the default, without networks",
    "logits": "logits, kernel machine",
    "all": "logits and all of the default's filters, kernel machine",
    "mean": "mean probability of both machines",
    "scales": "mean logit of all scales, no machine",
    "network": "logit at full size, no machine",
    "quick": "logits of one network a scale without symmetries and multiscale filters, kernel machine (`--quick`)",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--train-sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--work", type=Path, help="folder that keeps the networks")
    parser.add_argument("--device", help="of the networks and wavelets")
    parser.add_argument("--long", action="store_true", help="networks of configs/tuned-long.yaml")


def run(study: Study) -> None:
    if study.quick:
        with tempfile.TemporaryDirectory() as folder:
            made_up = Path(folder) / "made-up"
            write_made_up(made_up)
            options = [
                "bank.0.banks.0.weights=random",
                "bank.0.banks.0.n_steps=2",
                "training.pixels=1000",
                "selection.pixels=400",
            ]
            where = {"set": "made-up", "n_train": 2, "seed": 0}
            study.row(where, partial(measure, made_up, options, 2, 0))
        return
    options = [f"bank.0.banks.0.weights={study.weight('mobilenet_v2')}"]
    longer = {"config": LONG} if study.options.long else {}
    splits = product(range(study.seeds or 3), study.options.train_sizes, study.sets or SETS)
    with device(study.options.device):
        for seed, n_train, name in splits:
            where = {"set": name, "n_train": n_train, "seed": seed} | longer
            work = study.options.work
            state = work and work / f"{'-'.join(map(str, where.values()))}.training"
            study.row(where, partial(measure, study.folder(name), options, n_train, seed, state, **longer))


def measure(
    folder: Path,
    options: Sequence[str],
    n_train: int,
    seed: int,
    state: Path | None = None,
    config: str = "tuned",
) -> dict[str, Any]:
    """Train the networks on a split, or read them from a file if it is there, and use them in all ways."""
    data = load_pairs(folder / "images", folder / "masks", labels=LABELS.get(folder.name))
    groups = folder / "groups.csv"
    split = few_shot_split(
        data.stems, n_train, seed, groups=read_groups(groups, data.stems) if groups.exists() else None
    )
    settings = Config.load(shipped(config), [*options, f"seed={seed}"])
    train, test = (_part(data, stems) for stems in (split.train, split.test))
    with at_once(state) as trained:
        machines = {
            way: Config.from_options(settings.model_dump() | {"bank": bank}).build()
            for way, bank in _banks(settings).items()
        }
        for machine in machines.values():
            machine.fit(*train, label_map=data.label_map)
        [bank] = trained
        machines["quick"] = machines["learnt"].quick()
        bare = {"network": bank.scales_[:1], "scales": bank.scales_}
        ways: dict[str, Callable[[FloatArray], Any]] = {
            **{way: machine.predict for way, machine in machines.items()},
            **{way: partial(_decide, bank, data, scales) for way, scales in bare.items()},
            "mean": partial(_average, machines, data),
        }
        counts = {
            way: {
                stem: _count(data, mask, decide(image))
                for stem, image, mask in zip(split.test, *test, strict=True)
            }
            for way, decide in ways.items()
        }
        expected = _expected(machines["recipe"], dict(zip(split.test, test[0], strict=True)))
    figures = {
        "chosen": "learnt" if machines["recipe"].bank_.learns_weights else "filters",
        "scales": [float(scale) for scale in bank.scales_],
        "expected": expected,
        "images": counts,
    }
    if (seed, n_train) == TIMED:
        forest = PixelForest(random_state=0).fit(*train, label_map=data.label_map)
        timed = {"forest": forest.predict} | {way: ways[way] for way in ("learnt", "quick", "filters")}
        figures["seconds"] = {way: round(_time(decide, test[0]), 2) for way, decide in timed.items()}
    return figures


@contextmanager
def at_once(state: Path | None) -> Iterator[list[TunedBank]]:
    """Let all tuned banks take the networks of the first one that is fitted, the only item of the list, and their maps."""
    fit, run, trained, maps = TunedBank.fit, TunedBank._run, [], {}

    def fit_once(bank: TunedBank, *given: Any, **options: Any) -> TunedBank:
        if not trained:
            fit(bank, *given, **options | {"checkpoint": state})
            trained.append(copy(bank))  # a segmenter forgets what it no longer needs
        vars(bank).update(vars(trained[0]))
        return bank

    def run_once(bank: TunedBank, networks: Sequence[Any], image: FloatArray, scale: Fraction) -> FloatArray:
        key = tuple(map(id, networks)), bank.symmetries, scale, image.shape, image.tobytes()
        if key not in maps:
            maps[key] = run(bank, networks, image, scale)
        return maps[key]

    with patch.object(TunedBank, "fit", fit_once), patch.object(TunedBank, "_run", run_once):
        yield trained


def _banks(config: Config) -> dict[str, Any]:
    learnt, filters = (bank.model_dump() for bank in config.bank)
    logits = learnt["banks"][0]
    everything = {"name": "stacked", "banks": [logits, *filters["banks"]]}
    return {
        "recipe": [learnt, filters],
        "learnt": learnt,
        "filters": filters,
        "logits": logits,
        "all": everything,
    }


def _part(data: Dataset, stems: Sequence[str]) -> tuple[list[Any], list[Any]]:
    places = [data.stems.index(stem) for stem in stems]
    return [data.images[place] for place in places], [data.masks[place] for place in places]


def _decide(bank: TunedBank, data: Dataset, scales: Sequence[Any], image: FloatArray) -> Any:
    """Label pixels by the mean logit over scales."""
    maps = bank.dense(image)
    logits = maps.reshape(len(bank.scales_), -1, *maps.shape[1:])[: len(scales)].mean(axis=0)
    ids = logits[0] > 0 if len(logits) == 1 else logits.argmax(axis=0)
    return data.label_map.decode(ids.astype(np.uint8))


def _average(machines: dict[str, Segmenter], data: Dataset, image: FloatArray) -> Any:
    """Label pixels by the mean probability of the machines on logits and on filters."""
    found = [machines[way].predict_proba(image) for way in ("logits", "filters")]
    return data.label_map.decode(np.mean(found, axis=0).argmax(axis=2).astype(np.uint8))


def _count(data: Dataset, mask: Any, labels: Any) -> list[int]:
    truth, ids = (data.label_map.encode(found) for found in (mask, labels))
    return np.ravel(confusion(truth, ids, data.label_map.n_classes)).tolist()


def _time(decide: Callable[[FloatArray], Any], images: Iterable[FloatArray]) -> float:
    with threadpool_limits(1):
        began = time.process_time()
        for image in images:
            decide(image)
        return time.process_time() - began


def _expected(machine: Segmenter, images: Mapping[str, FloatArray]) -> dict[str, list[float]]:
    """Tell the expected object IoU of each image, and the interval if there is one."""
    found = {}
    for stem, image in images.items():
        check = machine.segment(image).check
        if check is not None and check.expected_object_iou is not None:
            found[stem] = [
                round(value, 4) for value in (check.expected_object_iou, *(check.interval_80 or ()))
            ]
    return found


def scores_by_set(rows: Iterable[Row]) -> dict[str, Scores]:
    """Arrange mean IoU as `benchmarks.segmentation.scores_of` does, with ways as methods, beside those of two networks."""
    found: dict[str, Any] = {}
    for row in rows:
        where, ways = row["where"], row["figures"]["images"]
        if _is_long(row):
            ways = {LONG: ways["recipe"]}
        for way, images in ways.items():
            own = found.setdefault(where["set"], {}).setdefault((way, where["n_train"]), {})
            own.update({(where["seed"], stem): score_of(counts)[0] for stem, counts in images.items()})
    theirs = scores_of(row for row in read("segmentation") if row["where"]["method"] == NETWORKS)
    for name, own in found.items():
        own |= theirs.get(name, {})
    return {name: found[name] for name in SETS if name in found}


def tuned(rows: list[Row]) -> str:
    """Compare the recipe with two networks and the default, on the splits that all three ran."""
    return _compared(rows, {"recipe": "trained networks", NETWORKS: "two networks", "filters": "no networks"})


def tuned_long(rows: list[Row]) -> str:
    """Compare networks of four times the steps with the recipe and two networks, on the splits that all three ran."""
    return _compared(rows, {LONG: "`tuned-long`", "recipe": "`tuned`", NETWORKS: "two networks"})


def _compared(rows: list[Row], titles: Mapping[str, str]) -> str:
    """Compare the first method with the others, set by set."""
    (first, *others), parts = titles, []
    for n_train in SPREAD_SIZES:
        by_set = shared_by(scores_by_set(rows), titles, n_train)
        if not by_set:
            continue
        named = [
            (f"{name} ({len({seed for seed, _ in found[first, n_train]})})", {name: found})
            for name, found in by_set.items()
        ]
        if len(named) > 1:
            named.append((f"**mean of {len(by_set)} sets**", by_set))
        table = []
        for title, chosen in named:
            means = [_mean_over(chosen, method, n_train) for method in titles]
            gaps = [gap_of(chosen, first, method, n_train) for method in others]
            table.append((title, *(f"{mean:.3f}" for mean in means), *(broken(str(gap)) for gap in gaps)))
        less = (f"less {titles[method]}" for method in others)
        parts.append(_under(n_train, markdown_table(("set (splits)", *titles.values(), *less), table)))
    return "\n".join(parts)


def tuned_ways(rows: list[Row]) -> str:
    """Compare the ways to use the networks: means over the sets, and differences to the kernel machine on logits."""
    parts = []
    for n_train in SIZES:
        by_set = shared_by(scores_by_set(rows), WAYS, n_train)
        if not by_set:
            continue
        table = []
        for way, title in WAYS.items():
            gap = "" if way == "logits" else broken(str(gap_of(by_set, way, "logits", n_train)))
            table.append((title, f"{_mean_over(by_set, way, n_train):.3f}", gap))
        header = ("way", f"mean IoU, mean of {len(by_set)} sets", "less the kernel machine on logits")
        parts.append(_under(n_train, markdown_table(header, table)))
    return "\n".join(parts)


def tuned_coverage(rows: list[Row]) -> str:
    """Tell how often the 80 % interval of the recipe's models holds the true object IoU."""
    table, shares = [], []
    for name in SETS:
        held = []
        for row in rows:
            if row["where"]["set"] == name and not _is_long(row):
                for stem, (iou, *interval) in row["figures"]["expected"].items():
                    counts = row["figures"]["images"]["recipe"][stem]
                    true = _object_iou(counts)
                    if interval and not np.isnan(true):
                        held.append((iou, true, interval[0] <= true <= interval[1]))
        if held:
            expected, true, inside = np.mean(held, axis=0)
            shares.append(100 * inside)
            table.append((name, len(held), f"{expected:.3f}", f"{true:.3f}", f"{100 * inside:.0f} %"))
    table.append(("**mean of the sets**", "", "", "", f"{np.mean(shares):.0f} %"))
    header = (
        "set",
        "images with an interval",
        "expected object IoU",
        "true object IoU",
        "within the 80 % interval",
    )
    return markdown_table(header, table)


def tuned_seconds(rows: list[Row]) -> str:
    """Tabulate the processor's seconds for the test images, divided by the forest's."""
    table = []
    timed = {row["where"]["set"]: row for row in rows if "seconds" in row["figures"] and not _is_long(row)}
    for name, row in timed.items():
        seconds = row["figures"]["seconds"]
        ratios = [seconds[way] / seconds["forest"] for way in ("learnt", "quick", "filters")]
        scales = ", ".join(f"{scale:g}" for scale in row["figures"]["scales"])
        table.append((name, scales, *(f"{ratio:.2f}" for ratio in ratios)))
    return markdown_table(("set", "scales", "all networks", "`--quick`", "the default"), table)


def _is_long(row: Row) -> bool:
    return row["where"].get("config") == LONG


def _object_iou(counts: Sequence[int]) -> float:
    """Mean IoU of the classes without background; NaN if none is there."""
    of_classes = score_of(counts)[1][1:]
    return float(np.nanmean(of_classes)) if (~np.isnan(of_classes)).any() else float("nan")


def _mean_over(by_set: Mapping[str, Scores], method: str, n_train: int) -> float:
    return float(np.mean([np.mean(list(scores[method, n_train].values())) for scores in by_set.values()]))


def _under(n_train: int, table: str) -> str:
    return f"**With {n_train} training image{'s' * (n_train > 1)}:**\n\n{table}"


TABLES = {
    "tuned": tuned,
    "tuned_long": tuned_long,
    "tuned_ways": tuned_ways,
    "tuned_coverage": tuned_coverage,
    "tuned_seconds": tuned_seconds,
}
