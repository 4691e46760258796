"""Scores, time and memory of the command line on five training images of real sets.

    python -m benchmarks.fewshot --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz

DATA holds a folder for each set with images/ and masks/. Splits: stems sorted, permuted with
numpy.random.default_rng(seed); the last third is tested on, the first five of the rest are trained on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import write_result
from segkit.benchmark.machine import machine
from segkit.images import write_image, write_mask
from segkit.phantom import make_demo_set

RESULT = Path(__file__).parent / "results" / "fewshot.json"
CONFIGS = Path(__file__).parents[1] / "configs"
QUICK = ["selection.n_features=16", "selection.pixels=400", "training.pixels=1000", "kernel.n_components=128",
         "bank.name=scattering", "bank.J=2", "bank.L=3", "bank.tile=32"]  # fmt: skip


def split(folder: Path, seed: int, n_train: int) -> tuple[list[str], list[str]]:
    stems = sorted(path.stem for path in (folder / "images").iterdir())
    stems = [stems[index] for index in np.random.default_rng(seed).permutation(len(stems))]
    n_test = math.ceil(len(stems) / 3)
    return stems[:-n_test][:n_train], stems[-n_test:]


def link(folder: Path, stems: list[str], target: Path) -> None:
    """Folders images/ and masks/ of some stems, as links."""
    for kind in ("images", "masks"):
        (target / kind).mkdir(parents=True)
        for path in (folder / kind).iterdir():
            if path.stem in stems:
                (target / kind / path.name).symlink_to(path.resolve())


def run(*arguments: object) -> tuple[float, float]:
    """Run the command line; returns its seconds and its peak memory in GiB."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "segkit", *map(str, arguments), "--quiet"])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"segkit {' '.join(map(str, arguments))} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 2**20


def measure(folder: Path, bank: str, options: list[str], seed: int, n_train: int) -> dict[str, object]:
    train, test = split(folder, seed, n_train)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        link(folder, train, work / "train")
        link(folder, test, work / "test")
        flags = [flag for option in options for flag in ("--set", option)]
        config = [] if bank == "quick" else ["--config", CONFIGS / f"{bank}.yaml"]
        model = work / "m.segkit"
        fit_seconds, fit_memory = run(
            "train", work / "train/images", work / "train/masks", "-o", model, *config, *flags, "--seed", seed
        )
        predict_seconds, predict_memory = run("predict", model, work / "test/images", "-o", work / "out")
        run("evaluate", work / "out", work / "test/masks", "--json", work / "scores.json")
        scores = json.loads((work / "scores.json").read_text())
        model_megabytes = model.stat().st_size / 1e6
    return {
        "set": folder.name,
        "bank": bank,
        "seed": seed,
        "n_train": len(train),
        "n_test": len(test),
        "mean_iou": scores["mean_iou"],
        "interval": scores["interval"],
        "foreground_iou": scores["classes"][1]["iou"],
        "foreground_dice": scores["classes"][1]["dice"],
        "fit_seconds": fit_seconds,
        "fit_memory_gib": fit_memory,
        "predict_seconds_per_image": predict_seconds / len(test),
        "predict_memory_gib": predict_memory,
        "model_megabytes": model_megabytes,
        "options": options,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--vgg19", type=Path, help="truncated VGG19 weights (Caffe preprocessing)")
    parser.add_argument("--squeezenet", type=Path, help="SqueezeNet 1.0 weights (Caffe preprocessing)")
    parser.add_argument("--sets", nargs="+", default=["dsb2018_stained", "kvasir_seg_256", "drive"])
    parser.add_argument("--banks", nargs="+", default=["vgg19-truncated", "scattering", "squeezenet"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--train-size", type=int, default=5)
    parser.add_argument("--set", dest="options", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--quick", action="store_true", help="made-up images, a small bank: does it run?")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()

    records: list[dict[str, object]] = []
    if arguments.quick:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "made-up"
            for index, (image, mask) in enumerate(zip(*make_demo_set(4, shape=(64, 96)), strict=True)):
                write_image(folder / "images" / f"{index}.png", image)
                write_mask(folder / "masks" / f"{index}.png", 255 * mask)
            records.append(measure(folder, "quick", QUICK, 0, 2))
    else:
        extra = {
            "vgg19-truncated": [f"bank.weights={arguments.vgg19}"],
            "squeezenet": [f"bank.weights={arguments.squeezenet}", "bank.preprocessing=caffe"],
        }
        if arguments.out.exists():
            records = json.loads(arguments.out.read_text())["records"]
        done = {(record["set"], record["bank"], record["seed"]) for record in records}
        for seed in range(arguments.seeds):
            for bank in arguments.banks:
                for name in arguments.sets:
                    if (name, bank, seed) in done:
                        continue
                    options = [*extra.get(bank, []), *arguments.options]
                    record = measure(arguments.data / name, bank, options, seed, arguments.train_size)
                    # paths of this machine are nobody's business
                    record["options"] = [
                        option for option in options if not option.startswith("bank.weights")
                    ]
                    records.append(record)
                    print(
                        {key: record[key] for key in ("set", "bank", "seed", "mean_iou", "fit_seconds")},
                        flush=True,
                    )
                    write_result(arguments.out, {"records": records, "machine": machine()})
    write_result(arguments.out, {"records": records, "machine": machine()})


if __name__ == "__main__":
    main()
