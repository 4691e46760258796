"""Peak memory: of each bank for a pixel, of training on large images, and of images read by region.

    python -m benchmarks.memory [--parts ...] [--side 4096] [--large-side 20000] [--quick] [--out FILE]

Each measurement has a process of its own, whose peak is that of Python, libraries, images and results. Banks are measured
beside the bytes that they declare, from which tiles follow. The square is so large that blocks of fixed size count little.
Training is that of the default recipe under a memory limit, and that of a network with thousands of coarse channels, at its
default layers and at all non-linearities, on small images. The large image is made up and written as OME-Zarr, block by
block, and segmented under the same limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import digest_sources, result_path, write_result
from segkit import ConvNetBank, OrbitBank, ScatteringBank, Segmenter, load, memory_limit
from segkit._memory import bytes_used
from segkit.benchmark.machine import machine, peak_memory_mib
from segkit.cli.phantom import make_demo_set
from segkit.features import (
    ElongatedBank,
    FilterBank,
    MultiscaleBank,
    OrbitAveraged,
    PositionBank,
    StackedBank,
    TimmBank,
)
from segkit.segmentation.large import segment_large

SMALL, BLOCK = 256, 1024
LIMIT = "2GiB"
BANKS = [
    "scattering",
    "multiscale",
    "elongated",
    "position",
    "vgg19",
    "squeezenet",
    "mobilenet",
    "timm",
    "orbit",
    "averaged",
]


def bank_named(name: str) -> FilterBank:
    made: dict[str, FilterBank] = {
        "scattering": ScatteringBank(J=3, L=4, angles="averaged"),
        "multiscale": MultiscaleBank(),
        "elongated": ElongatedBank(),
        "position": PositionBank(),
        "vgg19": ConvNetBank("vgg19", weights="random", layers=["conv1_1", "conv2_1", "conv3_4"]),
        "squeezenet": ConvNetBank("squeezenet1_0", weights="random"),
        "mobilenet": ConvNetBank("mobilenet_v2", weights="random", output_stride=8),
        "timm": TimmBank(weights="random"),
        "orbit": OrbitBank((5,), n_templates=8),
        "averaged": OrbitAveraged(MultiscaleBank(sigma_max=4)),
    }
    return made[name]


def measure_bank(name: str, side: int) -> dict[str, Any]:
    """Compute all maps of a square, and watch the memory meanwhile."""
    bank = bank_named(name)
    image = np.random.default_rng(0).random((side, side, 3), dtype=np.float32)
    bank.maps(image[:128, :128])
    before = most = bytes_used()
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.002):
            most = max(most, bytes_used())

    watcher = threading.Thread(target=watch)
    watcher.start()
    bank.maps(image)
    ended.set()
    watcher.join()
    return {
        "bank": name,
        "side": side,
        "measured": (most - before) / side**2,
        "declared": bank.bytes_per_pixel(3),
    }


def squares(n: int, side: int) -> tuple[list[NDArray[np.float32]], list[NDArray[np.uint8]]]:
    """Drawn pictures and masks, repeated, so that there are lesions all over the images."""
    images, masks = make_demo_set(n, shape=(SMALL, SMALL))
    n_times = -(-side // SMALL)
    return (
        [np.tile(image.astype(np.float32), (n_times, n_times, 1))[:side, :side] for image in images],
        [np.tile(mask, (n_times, n_times))[:side, :side] for mask in masks],
    )


def measure_training(n_images: int, side: int) -> dict[str, Any]:
    """Train the default recipe on large images."""
    images, masks = squares(n_images, side)
    start = time.perf_counter()
    with memory_limit(LIMIT):
        Segmenter().fit(images, masks)
    seconds = time.perf_counter() - start
    return {"n_images": n_images, "side": side, "seconds": seconds, "peak_memory_mib": peak_memory_mib()}


def measure_networks(n_images: int, layers: str) -> dict[str, Any]:
    """Train on thousands of coarse channels: a network on pictures, and averaged over symmetries at half their size."""
    options: dict[str, Any] = {"weights": "random", "layers": None if layers == "default" else [layers]}
    full = ConvNetBank("mobilenet_v2", **options)
    half = OrbitAveraged(ConvNetBank("mobilenet_v2", pyramid=(0.5,), **options))
    bank = StackedBank([full, half, MultiscaleBank()])
    start = time.perf_counter()
    Segmenter(bank).fit(*squares(n_images, SMALL))
    seconds = time.perf_counter() - start
    return {
        "n_images": n_images,
        "layers": layers,
        "n_channels": bank.n_channels(),
        "seconds": seconds,
        "peak_memory_mib": peak_memory_mib(),
    }


def write_large(path: Path, side: int) -> None:
    """Write a made-up image as OME-Zarr 0.5: a drawn picture, repeated, with noise of its own in each block."""
    import zarr

    [picture] = make_demo_set(1, shape=(SMALL, SMALL))[0]
    tile = np.tile(picture, (BLOCK // SMALL, BLOCK // SMALL, 1)).transpose(2, 0, 1)
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    array = group.create_array("0", shape=(3, side, side), chunks=(3, BLOCK, BLOCK), dtype="uint8")
    rng = np.random.default_rng(0)
    for row in range(0, side, BLOCK):
        for col in range(0, side, BLOCK):
            height, width = min(BLOCK, side - row), min(BLOCK, side - col)
            noisy = tile[:, :height, :width] + 0.02 * rng.standard_normal((3, height, width))
            values = np.round(255 * np.clip(noisy, 1 / 255, 1)).astype(np.uint8)
            array[:, row : row + height, col : col + width] = values
    axes = [{"name": name} for name in "cyx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [{"path": "0"}]}]}


def measure_large(model: str, image: str, output: str) -> dict[str, Any]:
    """Segment an image by region."""
    start = time.perf_counter()
    with memory_limit(LIMIT):
        outcome = segment_large(load(model), image, output, resume=True)
    return {
        "seconds": time.perf_counter() - start,
        "n_tiles": outcome.n_tiles,
        "faults": len(outcome.faults),
        "peak_memory_mib": peak_memory_mib(),
    }


def apart(kind: str, *arguments: object) -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.memory",
        "--measure",
        kind,
        *map(str, arguments),
    ]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    record: dict[str, Any] = json.loads(found.stdout)
    return record


def measure(kind: str, arguments: list[str]) -> dict[str, Any]:
    if kind == "bank":
        return measure_bank(arguments[0], int(arguments[1]))
    if kind == "training":
        return measure_training(int(arguments[0]), int(arguments[1]))
    if kind == "networks":
        return measure_networks(int(arguments[0]), arguments[1])
    return measure_large(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", default=["banks", "training", "networks", "large"], help="what to measure"
    )
    parser.add_argument("--side", type=int, default=4096, help="side of the training images")
    parser.add_argument("--large-side", type=int, default=20_000, help="side of the image read by region")
    parser.add_argument(
        "--folder", type=Path, help="folder for the large image; one that stops goes on there"
    )
    parser.add_argument("--quick", action="store_true", help="small squares: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure[0], arguments.measure[1:])))
        return
    out = result_path(arguments, "memory.json")
    result: dict[str, Any] = json.loads(out.read_text()) if out.exists() and not arguments.quick else {}
    result |= {"machine": machine(), "limit": LIMIT}
    if "banks" in arguments.parts:
        names = BANKS[:3] if arguments.quick else BANKS
        result["banks"] = [
            {"sources": digest_sources()} | apart("bank", name, 128 if arguments.quick else 1536)
            for name in names
        ]
        for record in result["banks"]:
            print(
                f"{record['bank']}: {record['measured']:.0f} bytes a pixel, declared {record['declared']:.0f}"
            )
        write_result(out, result)
    if "training" in arguments.parts:
        result["training"] = {"sources": digest_sources()} | apart(
            "training", 2, 256 if arguments.quick else arguments.side
        )
        print(f"training: {result['training']}")
        write_result(out, result)
    if "networks" in arguments.parts:
        n_images, layers = (2, ["default"]) if arguments.quick else (5, ["default", "activations"])
        result["networks"] = [
            {"sources": digest_sources()} | apart("networks", n_images, name) for name in layers
        ]
        print(f"networks: {result['networks']}")
        write_result(out, result)
    if "large" in arguments.parts:
        with tempfile.TemporaryDirectory() as temporary:
            folder = arguments.folder or Path(temporary)
            side = 300 if arguments.quick else arguments.large_side
            model, image = folder / "model.segkit", folder / f"{side}.zarr"
            if not image.exists():
                Segmenter().fit(*squares(2, SMALL)).save(model)
                write_large(image, side)
            result["large"] = {
                "sources": digest_sources(),
                "side": side,
                **apart("large", model, image, folder / "out"),
            }
        print(f"large: {result['large']}")
        write_result(out, result)


if __name__ == "__main__":
    main()
