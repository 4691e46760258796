"""A graphics card beside the processor: networks of `configs/tuned.yaml` trained and used on both.

    python -m benchmarks card --data DATA --weights WEIGHTS [--sets ...] [--device cuda]

The five images of split 0 train the recipe, with fewer steps, on the processor, and twice on the card. Each model segments
ten test images where it was trained; that of the processor segments them on the card, too. Seconds are those of all cores.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import markdown_table
from benchmarks.rows import Row, Study, flat
from benchmarks.segmentation import LABELS, split, write_made_up
from segkit._common.device import device
from segkit.config import Config, shipped
from segkit.evaluation import score_masks
from segkit.images import load_pairs

N_TRAIN, N_TEST, N_STEPS = 5, 10, 100


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda", help="what is compared with the processor")


def run(study: Study) -> None:
    if study.quick:
        with tempfile.TemporaryDirectory() as place:
            write_made_up(Path(place) / "made-up", N_TRAIN + N_TEST, (64, 64))
            options = ["bank.0.banks.0.weights=random", "training.pixels=1000", "selection.pixels=400"]
            study.row({"set": "made-up"}, partial(measure, Path(place) / "made-up", options, "cpu", 2))
        return
    options = [f"bank.0.banks.0.weights={study.weight('mobilenet_v2')}"]
    with device(study.options.device):  # rows name it
        for name in study.sets or ("kvasir_seg_256",):
            asked = partial(measure, study.folder(name), options, study.options.device, N_STEPS)
            study.row({"set": name}, asked)


def measure(folder: Path, options: list[str], card: str, n_steps: int) -> dict[str, Any]:
    """Train and segment on the processor and on a card."""
    data = load_pairs(folder / "images", folder / "masks", labels=LABELS.get(folder.name))
    train, test = ([data.stems.index(stem) for stem in stems] for stems in split(folder, 0, N_TRAIN))
    test = test[:N_TEST]
    config = Config.load(shipped("tuned"), [*options, f"bank.0.banks.0.n_steps={n_steps}"])
    config = Config.from_options(config.model_dump() | {"bank": config.bank[0].model_dump()})
    models, masks, seconds = {}, {}, {}

    def segment(model: str, place: str) -> None:
        began = time.perf_counter()
        with device(place):
            masks[model, place] = [models[model].predict(data.images[index]) for index in test]
        seconds[f"segment on {place}"] = round(time.perf_counter() - began, 2)

    for model, place in (("card", card), ("again", card), ("processor", "cpu")):
        began = time.perf_counter()
        with device(place):
            models[model] = config.build().fit(
                [data.images[index] for index in train],
                [data.masks[index] for index in train],
                label_map=data.label_map,
            )
        seconds[f"train on {place}"] = round(time.perf_counter() - began, 2)
        segment(model, place)
    segment("processor", card)
    own, again, trained = masks["card", card], masks["again", card], masks["processor", "cpu"]
    truth = [data.label_map.encode(data.masks[index]) for index in test]

    def iou_of(found: list[Any]) -> float:
        ids = [data.label_map.encode(mask) for mask in found]
        return float(score_masks(truth, ids, data.label_map.n_classes).mean)

    return {
        "seconds": seconds,
        "changed_by_segmenting": changed(trained, masks["processor", card]),
        "changed_by_training_again": changed(own, again),
        "changed_by_training": changed(trained, own),
        "iou_of_processor": iou_of(trained),
        "iou_of_card": iou_of(own),
    }


def changed(masks: list[Any], others: list[Any]) -> float:
    """Tell the fraction of pixels of another class."""
    pairs = zip(masks, others, strict=True)
    return float(np.mean([np.mean(mask != other) for mask, other in pairs]))


def card(rows: list[Row]) -> str:
    """Tabulate seconds on both, and how far masks differ."""
    lines = []
    for row in flat(rows):
        seconds = row["seconds"]
        ratios = [seconds[f"{what} on cpu"] / seconds[f"{what} on cuda"] for what in ("train", "segment")]
        keys = ("changed_by_segmenting", "changed_by_training_again", "changed_by_training")
        shares = [f"{100 * row[key]:.3f} %" for key in keys]
        ious = [f"{row[f'iou_of_{where}']:.3f}" for where in ("processor", "card")]
        lines.append((row["set"], *(f"{ratio:.1f}" for ratio in ratios), *shares, *ious))
    header = ("set", "training faster by", "segmenting faster by")
    header += ("pixels changed by segmenting on the card", "by training again", "by training on the card")
    header += ("mean IoU of the processor's model", "of the card's")
    return markdown_table(header, lines)


TABLES = {"card": card}
