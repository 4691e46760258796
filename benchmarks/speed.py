"""Time to segment images, part by part and beside the pixel forest, over sizes and numbers of channels.

    python -m benchmarks.speed --data DATA [--vgg19 VGG19.npz --squeezenet SQUEEZENET.npz] [--recipes ...] [--sets ...]
        [--sizes 256 512 1024 2048] [--channels ...] [--repeats N] [--quick] [--out FILE]

Models of five images of each set segment its other images, which are mirrored to the size, and mixed to the number of
channels. Recipes and the forest take turns on every image, so that other work on the machine slows all of them alike.
Parts are measured on one thread, each beside its arithmetic limit: floating-point operations at the rate of a float32
matrix product, or bytes at the rate of a copy, both measured in the same run.

The result file holds a record for each code, recipe, set, number of channels and size; a run of other code leaves the
records of the former code as they are.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.common import digest_sources, result_path, sgemm_rate, split, write_result
from benchmarks.segmentation import NETWORKS, SETS, bank_option
from segkit import Segmenter
from segkit.baselines import PixelForest
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set
from segkit.config.read import shipped
from segkit.config.schema import Config
from segkit.features import (
    ConvNetBank,
    ElongatedBank,
    FilterBank,
    MultiscaleBank,
    ScatteringBank,
)
from segkit.features.averaged import OrbitAveraged
from segkit.features.views import View
from segkit.images import load_pairs
from segkit.segmentation import dense, segmenter

Image = NDArray[np.float32]
RECIPES = ("default", "fast", "networks")
FOREST = "forest"
SIZES = [256, 512, 1024, 2048]
N_TRAIN = 5
QUICK = ["bank={name: scattering, J: 2, L: 3, tile: 32}", "selection.pixels=400", "training.pixels=1000"]


def resized(image: Image, side: int, n_channels: int) -> Image:
    """Mirror or crop an image to a square; mix its channels to as many."""
    pads = [(0, max(0, side - length)) for length in image.shape[:2]]
    square = np.pad(image, (*pads, (0, 0)), mode="symmetric")[:side, :side]
    return with_channels(square, n_channels)


def with_channels(image: Image, n_channels: int) -> Image:
    """Mix the channels to another number: their mean, the first ones, or all and copies that are turned upside down."""
    if n_channels == 1:
        return np.ascontiguousarray(image.mean(axis=2, keepdims=True))
    copies = [image[::sign] for _, sign in zip(range(n_channels), [1, -1] * n_channels, strict=False)]
    return np.ascontiguousarray(np.concatenate(copies, axis=2)[:, :, :n_channels])


def options_of(recipe: str, arguments: argparse.Namespace) -> tuple[Path | None, list[str]]:
    """Give configuration file and options of a recipe."""
    if arguments.quick:
        return None, QUICK
    if recipe == "networks":
        return None, [bank_option(arguments, NETWORKS)]
    return (shipped("fast"), []) if recipe == "fast" else (None, [])


class Clock:
    """Processor seconds that functions take, without those of other watched functions; only one may run at a time."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner = [0.0]

    def watch(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function, whose time counts for a part."""

        def watched(*arguments: Any, **options: Any) -> Any:
            start = time.process_time()
            self._inner.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                spent = time.process_time() - start
                self.seconds[part] += spent - self._inner.pop()
                self._inner[-1] += spent

        return watched


@contextmanager
def one_thread() -> Iterator[None]:
    """Let every library work on one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(n_threads)


def profile(model: Segmenter, image: Image) -> dict[str, float]:
    """Processor seconds of each part of a prediction on one thread."""
    clock, kernels = Clock(), model.classifier_.kernels_
    watched = [
        *((bank, "maps", f"maps: {bank.label}") for bank in banks_of(model)),
        (dense, "_read_at_grid", "sampling"),
        (dense, "_sums", "linear sums"),
        (View, "upsample", "interpolation"),
        (kernels, "nonlinear_dot", "Gaussian part"),
        (segmenter, "label_pixels", "threshold"),
        (segmenter, "merge_small_regions", "regions"),
    ]
    with one_thread(), ExitStack() as stack:
        for owner, name, part in watched:
            stack.enter_context(patch.object(owner, name, clock.watch(part, getattr(owner, name))))
        clock.watch("rest", model.predict)(image)
    return dict(clock.seconds)


def limits(model: Segmenter, image: Image) -> dict[str, float]:
    """Seconds that the arithmetic of each part takes on one thread."""
    with one_thread():
        rate, bandwidth = sgemm_rate(), copy_rate()
    classifier, n_pixels = model.classifier_, math.prod(image.shape[:2])
    found, start = {}, 0
    for bank in banks_of(model):
        stop = start + bank.n_channels(image.shape[2])
        own = classifier.channels_
        own = own[(own >= start) & (own < stop)] - start
        found[f"maps: {bank.label}"] = max(
            operations(bank, own, image.shape) / rate, 4 * own.size * n_pixels / bandwidth
        )
        start = stop
    strides = model.bank_.strides(image.shape[2])[classifier.channels_]
    n_nonlinear, n_draws = classifier.nonlinear_channels.size, classifier.kernels_.frequencies_.shape[1]
    n_outputs = len(classifier.svm_.coef_)
    return found | {
        "sampling": 2 * 4 * 1024 * strides.size / bandwidth,
        "linear sums": 4 * n_pixels * (strides**-2.0).sum() / bandwidth,
        "interpolation": 2 * 4 * n_pixels * (n_nonlinear + len(set(strides)) * n_outputs) / bandwidth,
        "Gaussian part": 2 * n_pixels * n_draws * (n_nonlinear + n_outputs) / rate,
        "threshold": (4 * n_outputs + 8) * n_pixels / bandwidth,
        "regions": 2 * 8 * n_pixels / bandwidth,
    }


def operations(bank: FilterBank, channels: NDArray[np.intp], shape: tuple[int, ...]) -> float:
    """Additions and multiplications that the filters of a bank need, Fourier transforms where it has them."""
    n_pixels, n_image_channels = math.prod(shape[:2]), shape[2]
    if isinstance(bank, OrbitAveraged):
        return 8 * operations(bank.bank, channels % bank.bank.n_channels(n_image_channels), shape)
    if isinstance(bank, MultiscaleBank):
        radii = [int(4 * sigma + 0.5) for sigma in bank._sigmas()]
        used = np.unique(channels // 4) % len(radii)
        return sum(4.0 * (2 * radii[scale] + 1) * n_pixels for scale in used)
    if isinstance(bank, ElongatedBank):
        return len(np.unique(channels // 4)) * 2 * bank.n_angles * fourier(n_pixels) / 2
    if isinstance(bank, ScatteringBank):
        return n_image_channels * sum(wavelets(scale, bank.L, n_pixels) for scale in bank._scales())
    if isinstance(bank, ConvNetBank):
        return convolutions(bank, channels, shape)
    return 0.0


def fourier(n: float) -> float:
    """Operations of a complex Fourier transform."""
    return 5 * n * math.log2(n)


def wavelets(scale: int, L: int, n_pixels: int) -> float:
    """Operations of the transforms of a plane, its moduli and theirs."""
    at = [n_pixels / 4**j for j in range(scale)]
    first = fourier(at[0]) / 2 + sum(L * fourier(n) for n in at)
    second = sum(L * fourier(n) / 2 for n in at[:-1]) + sum(j * L**2 * fourier(n) for j, n in enumerate(at))
    return first + second


def convolutions(bank: ConvNetBank, channels: NDArray[np.intp], shape: tuple[int, ...]) -> float:
    """Operations of the convolutions down to the deepest of the channels, at each scale; bias left out."""
    strides = {name: layer.stride for layer in bank._trace.layers for name in layer.parameters}
    weights = bank.weights_used(channels, shape[2])
    return sum(
        2 * weight.size * math.prod(shape[:2]) * (size / strides[name]) ** 2
        for name, weight in weights.items()
        for size in bank.pyramid
        if name.endswith("weight") and name in strides
    )


def copy_rate(n_bytes: int = 2**27, n_repeats: int = 5) -> float:
    """Best measured rate of a copy, in bytes read and written per second."""
    source, target = np.ones(n_bytes // 4, dtype=np.float32), np.empty(n_bytes // 4, dtype=np.float32)
    seconds = []
    for _ in range(n_repeats):
        start = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - start)
    return 2 * n_bytes / min(seconds)


def banks_of(model: Segmenter) -> list[FilterBank]:
    """Banks of the stack, or the only one."""
    return list(getattr(model.bank_, "banks_", [model.bank_]))


def take_turns(models: dict[str, Any], images: list[Image]) -> dict[str, NDArray[np.float64]]:
    """Seconds on the clock and processor seconds of each model on each image, (n_images, 2)."""
    seconds: dict[str, list[Any]] = {name: [] for name in models}
    for image in images:
        for name, model in models.items():
            start = np.array([time.perf_counter(), time.process_time()])
            model.predict(image)
            seconds[name].append(np.array([time.perf_counter(), time.process_time()]) - start)
    return {name: np.array(found) for name, found in seconds.items()}


def read(name: str, arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Training pairs and test images of a set."""
    if arguments.quick:
        images, masks = make_demo_set(3, shape=(64, 64))
        return (images[:2], masks[:2]), images[2:]
    folder = arguments.data / name
    dataset = load_pairs(folder / "images", folder / "masks")
    train, test = split(folder, 0, N_TRAIN)
    images = dict(zip(dataset.stems, dataset.images, strict=True))
    masks = dict(zip(dataset.stems, dataset.masks, strict=True))
    return ([images[stem] for stem in train], [masks[stem] for stem in train]), [images[s] for s in test]


def train(pairs: Any, n_channels: int, arguments: argparse.Namespace) -> tuple[dict[str, Any], Counter[str]]:
    """Train every recipe and the forest; give the seconds too."""
    images, masks = [with_channels(image, n_channels) for image in pairs[0]], pairs[1]
    models: dict[str, Any] = {
        recipe: Config.load(*options_of(recipe, arguments)).build() for recipe in arguments.recipes
    }
    models[FOREST] = PixelForest(training_pixels=1000 if arguments.quick else 30_000)
    seconds: Counter[str] = Counter()
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(images, masks)
        seconds[name] = time.perf_counter() - start
    return models, seconds


def measure(name: str, n_channels: int | None, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Time and profile every recipe on a set, at each size."""
    pairs, test = read(name, arguments)
    n_channels = n_channels or pairs[0][0].shape[2]
    models, fit_seconds = train(pairs, n_channels, arguments)
    for side in arguments.sizes:
        # of large images a single one is enough
        n_images = max(1, min(arguments.repeats, arguments.repeats * 512**2 // side**2))
        images = [resized(image, side, n_channels) for image in test[:n_images]]
        if side <= 512:  # the first image of a size finds caches empty
            take_turns(models, images[:1])
        seconds = take_turns(models, images)
        for recipe in arguments.recipes:
            own, rival = seconds[recipe], seconds[FOREST]
            yield {
                "code": digest_sources(),
                "recipe": recipe,
                "set": name,
                "n_channels": n_channels,
                "side": side,
                "fit_seconds": fit_seconds[recipe],
                "forest_fit_seconds": fit_seconds[FOREST],
                **{
                    kind: {
                        "seconds": float(np.median(own[:, column])),
                        "forest_seconds": float(np.median(rival[:, column])),
                        "ratio": float(np.median(own[:, column] / rival[:, column])),
                    }
                    for column, kind in enumerate(("wall", "processor"))
                },
                "parts": profile(models[recipe], images[0]) if side <= arguments.profile_up_to else None,
                "limits": limits(models[recipe], images[0]) if side <= arguments.profile_up_to else None,
            }


KEY = ("code", "recipe", "set", "n_channels", "side")


def merged(known: list[dict[str, Any]], record: dict[str, Any]) -> list[dict[str, Any]]:
    """Add a record, in place of a former one of the same measurement."""
    return [one for one in known if any(one[key] != record[key] for key in KEY)] + [record]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with a folder for each set")
    parser.add_argument("--vgg19", type=Path, help="truncated VGG19 weights (Caffe preprocessing)")
    parser.add_argument("--squeezenet", type=Path, help="SqueezeNet 1.0 weights (Caffe preprocessing)")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument(
        "--channels",
        type=int,
        nargs="+",
        default=[None],
        help="numbers of channels; the set's own by default",
    )
    parser.add_argument("--repeats", type=int, default=5, help="images of each size, fewer of large ones")
    parser.add_argument("--profile-up-to", type=int, default=1024, help="largest side that is profiled")
    parser.add_argument("--quick", action="store_true", help="made-up images, a small model: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.recipes, arguments.sets, arguments.sizes, arguments.repeats = (
            ["default"],
            ["made-up"],
            [64],
            1,
        )
    elif arguments.data is None:
        parser.error("--data: needed, or --quick")
    path = result_path(arguments, "speed.json")
    known = json.loads(path.read_text(encoding="utf-8"))["records"] if path.exists() else []
    for name, n_channels in product(arguments.sets, arguments.channels):
        for record in measure(name, n_channels, arguments):
            known = merged(known, record)
            write_result(path, {"records": known, "machine": machine()})
            print(
                f"{record['recipe']}, {name}, {record['n_channels']} channels, {record['side']} x {record['side']}: "
                f"{record['wall']['seconds']:.2f} s, {record['wall']['ratio']:.2f} x the forest's time, "
                f"{record['processor']['ratio']:.2f} x its processor time",
                flush=True,
            )


if __name__ == "__main__":
    main()
