"""000 Figures 2 and 3: written and spoken digits with CDF features.

Figure 2: MNIST, small shifts and turns of noise templates, 245 of each: shifts up to 3 pixels, turns by 0, 10 and 20 degrees
either way. n bins are 2n + 1 thresholds. In the right panel the templates are of one draw. The paper names CDF(50, 500) and
1,000 images of each class for its one number, 98.97. It states neither the steps of shifts and turns, nor the interpolation,
nor the part of MNIST tested on; here the first 10,000. Its left panel has 30 draws of templates and 1,000 images of each
class, here 3 and 100; its right panel 100 training sets, here 10.

A unit image projects on a template with standard deviation 1/28, so the paper's thresholds, equally spaced on [-s, s], s =
1.1, nearly all miss the data. Of CDF(50, 500) only 25 of 101 lie between the extreme projections and tell images apart. The
others are columns of zeros, or of one constant, and are replaced by a single column of the same inner products. Thresholds
lie within three standard deviations ("data") unless the range is [-s, s].

Figure 3: the paper's TIDIGITS (326 speakers) cannot be had freely: the Free Spoken Digit Dataset (six men, 8 kHz) stands in
for it, so that its curves, which have no numbers, cannot be compared, and there is no split by gender. Speed is a warp of
time, pitch a shift along log frequency. Templates are training recordings, 45 transforms of each, 3 draws of them where the
paper has 30. With n = 1 the thresholds are -s, 0 and s: spectrograms are not negative, nor are their projections on each
other, so nothing lies on the far side of any threshold and the features are constant.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import signal
from scipy.interpolate import interp1d

from benchmarks.rows import Row, Study
from benchmarks.tables.common import arrays, mean_of_runs, pivot, select, to_hundredths
from benchmarks.tables.ridge import least_squares
from segkit.invariance import Composition, GroupCDF, Rotation, Translation

GROUP = Composition((Rotation((-20, -10, 0, 10, 20)), Translation(3, mode="zero")))
N_ELEMENTS = 5 * 49
REACH = 3.0
# No projection of a sample on a template is as many standard deviations; checked.
LARGEST = 7.5
SIZES = (10, 30, 100, 300, 1000)
PAPER = {("CDF(50, 500)", "[-s, s]", 1000): 98.97}


RATE = 8000  # samples per second
FRAME, HOP = 512, 160  # samples
N_FRAMES = 32  # 0.64 s about the middle of the energy
LOWEST, BINS_PER_OCTAVE, N_BINS = 125.0, 12, 57  # Hz; the highest bin is at 3.2 kHz
SPEEDS = (0.5, 0.71, 1.0, 1.41, 2.0)
# 400 cents, a third of an octave, up and down.
PITCH = Translation((0, BINS_PER_OCTAVE // 3), mode="zero")

Images = NDArray[np.float32]
# (training samples, test samples) -> features of both
Features = Callable[[Images, Images], tuple[Any, Any]]


def run(study: Study) -> None:
    written(study)
    spoken(study)


def written(study: Study) -> None:
    """Measure both panels of Figure 2."""
    sizes, n_test, n_repeats, n_draws = ((10, 30), 500, 1, 2) if study.quick else (SIZES, 10_000, 3, 10)
    mnist = arrays(study, "kernel-data/mnist/mnist.npz")
    # Twice the largest training set, so that repeats differ in it.
    chosen = draw(mnist["y_train"], 2 * sizes[-1], seed=0)
    train, y = unit(mnist["X_train"][chosen]), mnist["y_train"][chosen]
    test, test_y = unit(mnist["X_test"][:n_test]), mnist["y_test"][:n_test]

    def right(seed: int, size: int, represent: Any) -> float:
        """Percentage of right test images, from some of the training images."""
        rows = draw(y, size, seed)
        known, unknown = represent(rows)
        return 100 * float(np.mean(least_squares(known, y[rows]).predict(unknown) == test_y))

    size = sizes[len(sizes) // 2]
    for n, m, n_elements, reach in left_panel(quick=study.quick):

        def drawn(
            seed: int, n: int = n, m: int = m, n_elements: int = n_elements, reach: str = reach
        ) -> float:
            features = cdf(n, m, n_elements, reach, seed)
            return right(
                seed, size, lambda rows: (features.fit_transform(train[rows]), features.transform(test))
            )

        settings = {"n": n, "m": m, "elements": n_elements, "range": reach, "per class": size}
        study.row(
            settings,
            lambda drawn=drawn: mean_of_runs(map(drawn, range(n_repeats))),
            what="000 figure 2, left",
        )

    few, many = ((1, 20), (50, 20)) if study.quick else ((5, 200), (50, 500))
    methods: dict[tuple[str, str], Any] = {
        ("raw pixels", ""): lambda: (train.reshape(len(train), -1), test.reshape(len(test), -1)),
        (f"CDF{few}", "data"): lambda: features_of(cdf(*few, N_ELEMENTS, "data", seed=0), train, test),
        (f"CDF{many}", "[-s, s]"): lambda: features_of_paper(*many, train, test),
    }
    for (method, reach), represent in methods.items():
        made = functools.cache(represent)

        def repeats(size: int, made: Any = made) -> dict[str, Any]:
            known, unknown = made()
            return mean_of_runs(
                right(seed, size, lambda rows: (known[rows], unknown)) for seed in range(n_draws)
            )

        for size in sizes:
            study.row(
                {"features": method, "thresholds": reach, "per class": size},
                functools.partial(repeats, size),
                what="000 figure 2, right",
            )


def left_panel(*, quick: bool) -> list[tuple[int, int, int, str]]:
    """List bins, templates, transforms and range."""
    bins, templates, elements = ((1, 5), (5, 20), (1,)) if quick else ((1, 5, 12), (10, 30, 100), (1, 10, 50))
    middle = templates[-2]
    grid = [(n, m, N_ELEMENTS, "data") for n, m in itertools.product(bins, templates)]
    grid += [(bins[-1], middle, n_elements, "data") for n_elements in elements]
    return [*grid, (25, middle, N_ELEMENTS, "[-s, s]")]


def cdf(n_bins: int, n_templates: int, n_elements: int, reach: str, seed: int) -> GroupCDF:
    return GroupCDF(
        n_templates,
        n_bins=n_bins,
        group=GROUP,
        n_transforms=None if n_elements == N_ELEMENTS else n_elements,
        thresholds=np.linspace(-REACH, REACH, 2 * n_bins + 1) / 28 if reach == "data" else None,
        random_state=seed,
    )


def features_of(transformer: GroupCDF, train: Images, test: Images) -> tuple[Any, Any]:
    return transformer.fit_transform(train), transformer.transform(test)


def features_of_paper(n: int, m: int, train: Images, test: Images) -> tuple[Images, Images]:
    """CDF features on [-s, s], whose constant columns are summed up in the last one."""
    transformer = cdf(n, m, N_ELEMENTS, "[-s, s]", seed=0).fit(train)
    gap = float(transformer.thresholds_[1] - transformer.thresholds_[0])
    inside = np.abs(transformer.thresholds_) * 28 <= LARGEST
    transformer.set_params(thresholds=transformer.thresholds_[inside]).fit(train)
    constant = np.sqrt(gap * (~inside).sum() / 2)
    found = []
    for images in (train, test):
        features = transformer.transform(images)
        if features[:, :m].any() or (features[:, -m:] < np.sqrt(gap / m) * (1 - 1e-5)).any():
            raise ValueError(f"projections beyond {LARGEST} standard deviations: raise LARGEST")
        found.append(np.hstack([features, np.full((len(features), 1), constant, dtype=features.dtype)]))
    return found[0], found[1]


def unit(images: NDArray[np.uint8]) -> Images:
    floating = images.astype(np.float32)
    return floating / np.linalg.norm(floating, axis=(1, 2), keepdims=True)


def draw(labels: NDArray[Any], per_class: int, seed: int) -> NDArray[np.intp]:
    """Positions of as many samples of each class."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.permutation(np.flatnonzero(labels == label))[:per_class] for label in np.unique(labels)]
    )


def spoken(study: Study) -> None:
    """Measure Figure 3: accuracy on an unseen speaker, mean over speakers."""
    bins, templates, n_repeats = ((5,), (10, 50), 1) if study.quick else ((1, 5, 25), (10, 50, 200), 3)
    fsdd = arrays(study, "kernel-data/fsdd/fsdd.npz")
    step = 5 if study.quick else 1
    recordings = np.split(fsdd["samples"].astype(np.float64), fsdd["offsets"][1:-1])[::step]
    patches = np.stack([patch(recording) for recording in recordings])
    unseen = functools.partial(unseen_speakers, patches, fsdd["digit"][::step], fsdd["speaker"][::step])
    study.row({"features": "raw spectrogram"}, lambda: unseen([raw]), what="000 figure 3")
    for n, m in itertools.product(bins, templates):
        draws = [functools.partial(cdf_of_speech, n, m, seed) for seed in range(n_repeats)]
        study.row({"features": "CDF", "n": n, "m": m}, functools.partial(unseen, draws), what="000 figure 3")


def unseen_speakers(
    patches: Images, digit: NDArray[Any], speaker: NDArray[Any], draws: list[Features]
) -> dict[str, Any]:
    """Leave one speaker out; the accuracy on each is a mean over draws of templates."""
    accuracies = []
    for left_out in np.unique(speaker):
        train, test = speaker != left_out, speaker == left_out
        right = []
        for features in draws:
            known, unknown = features(patches[train], patches[test])
            right.append(np.mean(least_squares(known, digit[train]).predict(unknown) == digit[test]))
        accuracies.append(100 * float(np.mean(right)))
    return mean_of_runs(accuracies)


def raw(train: Images, test: Images) -> tuple[Images, Images]:
    return train.reshape(len(train), -1), test.reshape(len(test), -1)


def cdf_of_speech(n: int, m: int, seed: int, train: Images, test: Images) -> tuple[Any, Any]:
    """CDF features over pitch of templates at each speed, averaged over speeds."""
    templates = train[np.random.default_rng(seed).choice(len(train), m, replace=False)]
    thresholds = GroupCDF(n_bins=n, templates=templates).fit(train).thresholds_
    played = np.concatenate([at_speed(templates, speed) for speed in SPEEDS])
    features = GroupCDF(group=PITCH, templates=played, thresholds=thresholds).fit(train)
    known, unknown = (
        features.transform(part).reshape(len(part), -1, len(SPEEDS), m).mean(axis=2) for part in (train, test)
    )
    return raw(known, unknown)


def at_speed(patches: Images, speed: float) -> Images:
    """Play at another speed about the middle, zeros entering at the ends; the factor would preserve inner products."""
    n = patches.shape[1]
    # Rounding keeps times on a frame exact.
    times = ((n - 1) / 2 + speed * (np.arange(n) - (n - 1) / 2)).round(9)
    padded = np.pad(patches, ((0, 0), (1, 1), (0, 0)))
    play = interp1d(np.arange(-1, n + 1), padded, axis=1, bounds_error=False, fill_value=0.0)
    return (math.sqrt(speed) * play(times)).astype(patches.dtype)


def patch(recording: NDArray[np.float64]) -> NDArray[np.float32]:
    """Logarithmic amplitude over time and log frequency, about the middle of the energy."""
    padded = np.pad(recording, N_FRAMES * HOP)
    spectrum = np.abs(signal.stft(padded, RATE, nperseg=FRAME, noverlap=FRAME - HOP)[2])
    energy = (spectrum**2).sum(axis=0)
    middle = int(np.average(np.arange(len(energy)), weights=energy))
    frames = spectrum[:, middle - N_FRAMES // 2 : middle + N_FRAMES // 2]
    loudness = np.log1p(100 * frames / frames.max())
    wanted = LOWEST * 2 ** (np.arange(N_BINS) / BINS_PER_OCTAVE)
    bins = np.arange(FRAME // 2 + 1) * RATE / FRAME
    image = np.stack([np.interp(wanted, bins, frame) for frame in loudness.T])
    return (image / np.linalg.norm(image)).astype(np.float32)


def digits_by_size(rows: list[Row]) -> str:
    """Make the table of the right panel of Figure 2."""
    return pivot(select(rows, "000 figure 2, right"), "per class", PAPER, title="{:,} of each class")


def spoken_digits(rows: list[Row]) -> str:
    """Make the table of Figure 3, by numbers of bins and templates."""
    [spectrograms] = select(rows, "000 figure 3", features="raw spectrogram")
    table = pivot(select(rows, "000 figure 3", features="CDF"), "m", title="m = {}")
    return f"{table}\nRaw spectrograms: {to_hundredths(spectrograms['figures'])}."


TABLES = {"digits_by_size": digits_by_size, "spoken_digits": spoken_digits}
