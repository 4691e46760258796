"""Time to segment one 256 x 256 image against the arithmetic it needs.

    python -m benchmarks.predict_speed --vgg19 VGG19.npz

The arithmetic is that of the convolutions down to the deepest kept layer, of the projection on the
random frequencies and of the classifier, at the rate of a float32 matrix product measured in the
same run (2,048 features are 1,024 frequencies, each with its cosine and sine).
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.common import result_path, sgemm_rate, write_result
from segkit import ConditionalCovarianceSelector, ConvNetBank, MixtureRFF, Segmenter
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set

SIDE = 256


def convolution_flops(segmenter: Segmenter) -> float:
    """Multiplications and additions of the convolutions that one image needs, bias left out."""
    bank = segmenter.bank_
    strides = {layer.parameters[-2]: layer.stride for layer in bank._trace.layers}
    weights = bank.weights_used(segmenter.classifier_.channels_, 3)
    return sum(
        2 * weight.size * (SIDE / strides[name]) ** 2
        for name, weight in weights.items()
        if name.endswith("weight")
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vgg19", type=Path, help="truncated VGG19 weights; seeded random ones if absent")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a small model: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()

    n_channels, n_components = (8, 64) if arguments.quick else (128, 2048)
    layers = [
        f"conv{block}_{number}" for block, depth in ((1, 2), (2, 2), (3, 4)) for number in range(1, depth + 1)
    ]
    bank = ConvNetBank("vgg19", weights=arguments.vgg19 or "random", layers=layers, preprocessing="caffe")
    images, masks = make_demo_set(2, shape=(SIDE, SIDE))
    segmenter = Segmenter(
        bank,
        selector=ConditionalCovarianceSelector(n_features_to_select=n_channels, max_iter=5),
        kernels=MixtureRFF(n_components=n_components),
        lambdas=None,
        normalization="set",
        selection_pixels=400 if arguments.quick else 2000,
        training_pixels=500 if arguments.quick else 5000,
        probability="raw",
        threshold="zero",
    ).fit(images[:1], masks[:1])

    flops = {
        "convolutions": convolution_flops(segmenter),
        "projection": 2.0 * SIDE**2 * n_channels * segmenter.classifier_.kernels_.frequencies_.shape[1],
        "classifier": 2.0 * SIDE**2 * segmenter.classifier_.svm_.coef_.shape[1],
    }
    segmenter.predict(images[1])
    ratios, seconds, rates = [], [], []
    for _ in range(2 if arguments.quick else arguments.repeats):
        rate = sgemm_rate()
        start = time.perf_counter()
        segmenter.predict(images[1])
        seconds.append(time.perf_counter() - start)
        rates.append(rate)
        ratios.append(seconds[-1] * rate / sum(flops.values()))
    result = {
        "image": [SIDE, SIDE, 3],
        "kept_channels": n_channels,
        "n_components": n_components,
        "gflops": {name: value / 1e9 for name, value in flops.items()},
        "ratio_to_arithmetic": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
        "seconds": statistics.median(seconds),
        "sgemm_gflops_per_second": statistics.median(rates) / 1e9,
        "kept_channels_by_layer": segmenter.summary_.kept_channels,
        "machine": machine(),
    }
    write_result(result_path(arguments, "predict_speed.json"), result)
    print(f"{np.round(result['ratio_to_arithmetic'], 2)} x the arithmetic; {result['seconds']:.2f} s")


if __name__ == "__main__":
    main()
