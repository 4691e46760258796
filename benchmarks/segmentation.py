"""segkit against the pixel forest, FCN and U-Net, trained on 1 to 15 images of real sets.

    python -m benchmarks.segmentation --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz
        [--sets ...] [--methods ...] [--train-sizes ...] [--seeds N] [--last N] [--work WORK] [--quick]

DATA holds a folder for each set with images/ and masks/. The runs are those of `segkit benchmark`; each
is kept in segmentation-SET.json when it is done, so that a cut run goes on where it stopped. Networks train
on crops of 160 pixels for at most --max-steps steps; a run that was stopped by this budget is marked. fcn-best,
fcn-vgg19-best, unet-best and smp choose between two learning rates on held-out pixels, and are trained anew on all pixels
for as many steps as were best: give them more steps, so that validation stops them. That takes one to three hours
on a core; with --work, a run that was cut goes on from its last validation, and its seconds are those since then.

With --last N the last N images of a set are tested on, instead of a third drawn at random: slices of one volume are
like their neighbours, and those of a block have few among the training images. Kept in lastN-SET.json.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import digest_sources, result_path
from segkit._files import atomic
from segkit.benchmark import Benchmark, load_methods
from segkit.cli.phantom import make_demo_set
from segkit.config.read import read_options, shipped
from segkit.errors import SegkitError
from segkit.evaluation.metrics import dice_of, iou_of
from segkit.images import write_image, write_mask

SETS = ("kvasir_seg_256", "dsb2018_stained", "drive", "isbi2012_em")
METHODS = ("segkit-networks", "segkit-no-networks", "forest")
# The banks to choose from, each of networks and, behind them, the filters of pixel classifiers.
(*NETWORKS, FILTERS), (*VGG_ALONE, _) = (
    bank["banks"] for bank in read_options(shipped("two-networks"))["bank"]
)
QUICK = [
    "segkit-no-networks.bank={name: scattering, J: 2, L: 3, tile: 32}",
    "segkit-no-networks.selection={n_features: 16, pixels: 400}",
    "segkit-no-networks.training.pixels=1000",
    "forest.training_pixels=1000",
    "unet={kind: unet, max_steps: 2, n_filters: 2, depth: 2, crop: 32}",
]


class Results:
    """What is known of one set: a line for each finished run.

    Parameters
    ----------
    path : Path
        The result file.
    name : str
        The set.
    in_rows : bool, default=False
        Whether the file holds several sets, so that each run names its own.
    """

    def __init__(self, path: Path, name: str, *, in_rows: bool = False) -> None:
        self.path, self.name = path, name
        self.own = {"set": name} if in_rows else {}
        known = json.loads(path.read_text()) if path.exists() else {"machines": [], "runs": []}
        self.machines: list[dict[str, Any]] = known["machines"]
        self.runs: list[dict[str, Any]] = known["runs"]

    def holds(self, method: str, n_train: int, seed: int) -> bool:
        """Tell whether a run is finished."""
        wanted = self.own | {"method": method, "n_train": n_train, "seed": seed}
        return any(wanted.items() <= run.items() for run in self.runs)

    def add(self, outcome: dict[str, Any], settings: dict[str, Any]) -> None:
        """Add a run: of each image the counts that every score follows from, and what does not follow."""
        unit, records = outcome["unit"], outcome["records"]
        kept = ("method", "n_train", "seed", "fit_seconds", "predict_seconds", "peak_memory_mib", "device")
        run = self.own | {name: unit[name] for name in (*kept, "budget_limited", "notes")}
        if unit["explain"] is not None:
            run["bank"] = unit["explain"]["bank"]
        images = {
            record["image"]: [*np.ravel(record["confusion"]).tolist(), *record["boundary_f"], record["brier"]]
            for record in records
        }
        if unit["machine"] not in self.machines:
            self.machines.append(unit["machine"])
        machine = self.machines.index(unit["machine"])
        self.runs.append(
            {**run, "machine": machine, "sources": digest_sources(), "settings": settings, "images": images}
        )
        self.write()

    def write(self) -> None:
        """Write the file, a line for each run."""
        header = {
            "name": self.path.stem if self.own else self.name,
            "images": "of each test image: pixels by truth and prediction (row by row), outline F of each class, Brier",
            "machines": self.machines,
        }
        lines = ",\n".join(json.dumps(run) for run in self.runs)
        text = json.dumps(header)[:-1] + f', "runs": [\n{lines}\n]}}\n'
        with atomic(self.path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def records_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the records of a result file as `segkit.report.summary` takes them, with IoU and Dice only."""
    records = []
    for run in result["runs"]:
        for image, values in run["images"].items():
            # pixels by truth and prediction, and where they were measured outline F of each class and Brier
            n_classes = next(n for n in range(2, len(values)) if len(values) in (n * n, n * n + n + 1))
            counts = np.reshape(values[: n_classes**2], (n_classes, n_classes))
            iou, dice = iou_of(counts), dice_of(counts)
            own = {name: run[name] for name in ("method", "n_train", "seed")}
            scores = {"mean_iou": float(np.nanmean(iou)), "iou": iou.tolist(), "dice": dice.tolist()}
            records.append({**own, "image": image, **scores})
    return records


def scores_of(result: dict[str, Any]) -> dict[tuple[str, int], dict[tuple[int, str], float]]:
    """Give the mean IoU of each seed and image, by method and number of training images."""
    scores: dict[tuple[str, int], dict[tuple[int, str], float]] = {}
    for record in records_of(result):
        run = scores.setdefault((record["method"], record["n_train"]), {})
        run[record["seed"], record["image"]] = record["mean_iou"]
    return scores


def measure(
    folder: Path,
    results: Results,
    work: Path,
    arguments: argparse.Namespace,
    overrides: list[str],
    test: Path | None = None,
    labels: Mapping[int, str] | None = None,
) -> None:
    """Run what is missing of one set, on test images drawn or listed; images of a group stay together.

    Masks of more than two values need the class of each (`labels`).
    """
    groups = folder / "groups.csv"
    methods = load_methods(arguments.methods, None, overrides)
    benchmark = Benchmark(
        folder / "images",
        folder / "masks",
        work,
        methods,
        arguments.train_sizes,
        range(arguments.seeds),
        groups=groups if groups.exists() else None,
        test=test,
        labels=labels,
    )
    for unit in benchmark.units:
        if results.holds(unit.method.name, unit.n_train, unit.seed):
            continue
        outcome = benchmark.outcome(unit)
        if "error" in outcome:
            print(f"{results.name} {unit.name} failed: {outcome['error']}", flush=True)
            continue
        # folders of this machine are nobody's business
        settings = [
            re.sub(r'(weights"?[=:] ?"?)[^",]*/', r"\1", option)
            for option in overrides
            if option.startswith(f"{unit.method.name}.")
        ]
        results.add(outcome, {"options": settings})
        mean = np.mean([record["mean_iou"] for record in outcome["records"]])
        print(f"{results.name} {unit.name}: {mean:.3f} ({outcome['unit']['fit_seconds']:.0f} s)", flush=True)


def bank_option(arguments: argparse.Namespace, *choice: Iterable[dict[str, Any]]) -> str:
    """Bank of networks on the weights at hand beside the filters of pixel classifiers, or several of them, as an option."""
    files = {"vgg19": arguments.vgg19, "squeezenet1_0": arguments.squeezenet}
    banks = [
        {
            "name": "stacked",
            "banks": [
                *({**net, "weights": str(files[net["name"]]), "preprocessing": "caffe"} for net in networks),
                FILTERS,
            ],
        }
        for networks in choice
    ]
    return f"bank={json.dumps(banks[0] if len(banks) == 1 else banks)}"


def overrides_of(arguments: argparse.Namespace) -> list[str]:
    """Weights at hand, and networks that a processor can train.

    Methods "-best" choose between two learning rates, and train anew on all pixels.
    """
    squeezenet = [f"weights={arguments.squeezenet}", "backbone=squeezenet1_0", "preprocessing=caffe"]
    vgg = [f"weights={arguments.vgg19}", "backbone=vgg19", "preprocessing=caffe"]
    bank_vgg = ["bank.name=vgg19", f"bank.weights={arguments.vgg19}", "bank.preprocessing=caffe"]
    budget = ["crop=160", f"max_steps={arguments.max_steps}", f"device={arguments.device}"]
    best = ["learning_rate=[0.0001, 0.001]", "retrain=true"]
    of_methods = {
        "segkit-networks": [bank_option(arguments, NETWORKS, VGG_ALONE)],
        "segkit-paper": [*bank_vgg, "title=recipe of the paper (VGG19)"],
        "convpaint": [*bank_vgg, "title=convpaint (first layer of VGG19)"],
        "convpaint-m": [*bank_vgg, "title=convpaint (three layers of VGG19)"],
        "convpaint-centred": [
            *bank_vgg,
            "title=convpaint (three layers of VGG19), centred, adaptive threshold",
        ],
        "forest-convpaint": [*bank_vgg, "title=pixel forest on convpaint's filters (VGG19)"],
        "forest-convpaint-default": [
            "kind=forest",
            *bank_vgg,
            "bank.layers=[conv1_1]",
            "bank.pyramid=[1.0, 0.5, 0.25]",
            "title=pixel forest on convpaint's default filters (VGG19)",
        ],
        "fcn": [*squeezenet, "n_hidden=512", *budget],
        "fcn-vgg19": ["kind=fcn", "title=FCN-8s (VGG19)", *vgg, "n_hidden=512", *budget],
        "fcn-scratch": ["backbone=squeezenet1_0", "n_hidden=512", *budget],
        "unet": ["n_filters=16", *budget],
        "fcn-best": [
            "kind=fcn",
            "title=FCN-8s, to early stopping",
            *squeezenet,
            "n_hidden=512",
            *best,
            *budget,
        ],
        "fcn-vgg19-best": [
            "kind=fcn",
            "title=FCN-8s (VGG19), to early stopping",
            *vgg,
            "n_hidden=512",
            *best,
            *budget,
        ],
        "unet-best": ["kind=unet", "title=U-Net, to early stopping", "n_filters=32", *best, *budget],
        "smp": [*([f"weights={arguments.mobilenet}"] if arguments.mobilenet else []), *best, *budget],
    }
    return [f"{method}.{option}" for method in arguments.methods for option in of_methods.get(method, [])]


def list_last(folder: Path, n_images: int, path: Path) -> Path:
    """Write the names of the last images of a folder, a line each."""
    stems = sorted(file.stem for file in (folder / "images").iterdir())
    path.write_text("\n".join(stems[-n_images:]), encoding="utf-8")
    return path


def write_made_up(folder: Path) -> None:
    """Write four pictures and their masks, for a quick run."""
    for index, (image, mask) in enumerate(zip(*make_demo_set(4, shape=(64, 96)), strict=True)):
        write_image(folder / "images" / f"{index}.png", image)
        write_mask(folder / "masks" / f"{index}.png", 255 * mask)


def parser_of(
    description: str | None, *, methods: tuple[str, ...], train_sizes: list[int]
) -> argparse.ArgumentParser:
    """Command line of the benchmarks that run methods on sets."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--vgg19", type=Path, help="truncated VGG19 weights (Caffe preprocessing)")
    parser.add_argument("--squeezenet", type=Path, help="SqueezeNet 1.0 weights (Caffe preprocessing)")
    parser.add_argument("--mobilenet", type=Path, help="MobileNetV2 weights (torchvision's preprocessing)")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--methods", nargs="+", default=methods)
    parser.add_argument("--train-sizes", type=int, nargs="+", default=train_sizes)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="made-up images, small models: does it run?")
    parser.add_argument("--out", type=Path, help="folder of the result files")
    return parser


def parse(parser: argparse.ArgumentParser, name: str = "") -> argparse.Namespace:
    """Parse the command line; only the quick form brings its own images and needs no weights.

    Results go to the folder of result files, or to the file of this name in it.
    """
    arguments = parser.parse_args()
    arguments.out = result_path(arguments, name)
    missing = [f"--{name}" for name in ("data", "vgg19", "squeezenet") if getattr(arguments, name) is None]
    if missing and not arguments.quick:
        parser.error(f"{', '.join(missing)}: needed, or --quick")
    return arguments


def main() -> None:
    parser = parser_of(__doc__, methods=METHODS, train_sizes=[1, 2, 3, 5, 15])
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, help="folder that keeps what a cut run has done")
    parser.add_argument("--last", type=int, metavar="N", help="test on the last N images of each set")
    arguments = parse(parser)
    if arguments.work:
        arguments.work.mkdir(parents=True, exist_ok=True)
    try:
        with nullcontext(arguments.work) if arguments.work else tempfile.TemporaryDirectory() as temporary:
            if arguments.quick:
                folder = Path(temporary) / "made-up"
                write_made_up(folder)
                arguments.methods = ["segkit-no-networks", "forest", "unet"]
                arguments.train_sizes, arguments.seeds = [2], 1
                results = Results(arguments.out / "segmentation-quick.json", "segmentation-quick")
                measure(folder, results, Path(temporary) / "work", arguments, QUICK)
            else:
                for name in arguments.sets:
                    folder, title, test = arguments.data / name, f"segmentation-{name}", None
                    if arguments.last:
                        title = f"last{arguments.last}-{name}"
                        test = list_last(folder, arguments.last, Path(temporary) / f"{title}.txt")
                    results = Results(arguments.out / f"{title}.json", title)
                    measure(folder, results, Path(temporary) / name, arguments, overrides_of(arguments), test)
    except SegkitError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
