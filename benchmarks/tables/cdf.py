"""000: features of distribution functions, CDF(n, m), of sequences, written digits and spoken digits.

n bins are 2n + 1 thresholds, m is the number of templates.

Figure 1, and Figure 4 of the supplement: sequences of 5 characters out of 8, positive if they hold two given ones. Both
print curves without numbers. Figure 4 states neither its numbers of bins, templates and permutations nor that of repeats.
Its sentence that "all classification results" are from 4,000 training points can hold for Figure 4 only: Figures 1 and 5
vary the training set. Training samples are balanced, the test set, all other sequences, is not: 21 % are positive. On
[-s, s], the range of eq. 3, n = 1 and 2 leave hardly any threshold but 0 among the projections; the range "data" is three
standard deviations of a projection either way. Permutations are drawn independently, as in Theorem 3, so that one may occur
twice; 120 are all of them, once each.

Figure 2, right panel: MNIST, small shifts and turns of noise templates, 245 of each: shifts up to 3 pixels, turns by 0, 10
and 20 degrees either way. The templates are of one draw. The paper names CDF(50, 500) and 1,000 images of each class for
its one number, 98.97. It states neither the steps of shifts and turns, nor the interpolation, nor the part of MNIST tested
on; here the first 10,000. It has 100 training sets, here 10.

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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import signal
from scipy.interpolate import interp1d
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.markdown import pivot, to_hundredths, to_tenths
from benchmarks.rows import Row, Study, mean_of_runs, select
from benchmarks.tables.ridge import least_squares
from segkit.invariance import Composition, GroupCDF, Permutation, Rotation, Translation, average_fit
from segkit.kernels import Gaussian, median_gamma

N_CHARACTERS, LENGTH = 8, 5
TARGETS = (0, 1)
N_PERMUTATIONS = 120
REACH = 3.0
SIZES_OF_SEQUENCES = (10, 25, 50, 100, 250, 500, 1000)
CLASSIFIERS: dict[str, Callable[[Any, Any], Any]] = {
    "RLS": least_squares,
    "1-NN": lambda X, y: KNeighborsClassifier(1, algorithm="brute").fit(X, y),
}

# Of written digits.
GROUP = Composition((Rotation((-20, -10, 0, 10, 20)), Translation(3, mode="zero")))
# No projection of a sample on a template is as many standard deviations; checked.
LARGEST = 7.5
SIZES_OF_DIGITS = (10, 30, 100, 300, 1000)
PAPER = {("CDF(50, 500)", "[-s, s]", 1000): 98.97}

# Of spoken digits.
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


class Representation(NamedTuple):
    """Features, and which row of them each sequence has: what is invariant is computed once a multiset, of 792."""

    features: NDArray[Any]
    rows: NDArray[np.intp]


def run(study: Study) -> None:
    of_sequences(study)
    written(study)
    spoken(study)


def of_sequences(study: Study) -> None:
    sizes, templates, n_repeats = ((10,), (1,), 2) if study.quick else (SIZES_OF_SEQUENCES, (1, 10, 25), 100)
    methods: dict[str, Callable[[int], Representation]] = {
        "raw": lambda _: Representation(one_hot(sequences()).reshape(-1, LENGTH * N_CHARACTERS), everyone()),
        "bag of words": lambda _: Representation(one_hot(multisets()[0]).sum(axis=1), multisets()[1]),
        "Haar kernel": lambda _: Representation(haar_features(), multisets()[1]),
    }
    of_cdf = {f"CDF(25, {m})": functools.partial(cdf_of_sequences, 25, m) for m in templates}
    for classifier, (method, represent), size in itertools.product(
        CLASSIFIERS, (methods | of_cdf).items(), sizes
    ):
        study.row(
            {"classifier": classifier, "features": method, "per class": size},
            functools.partial(repeat, represent, CLASSIFIERS[classifier], size, n_repeats),
            what="000 figure 1",
        )
    size, n_repeats = (200, 2) if study.quick else (2000, 10)
    for method, represent in methods.items():
        study.row(
            {"features": method},
            functools.partial(repeat, represent, least_squares, size, n_repeats),
            what="000 figure 4",
        )
    for n, m, n_elements, reach in grid(quick=study.quick):
        represent = functools.partial(cdf_of_sequences, n, m, n_elements=n_elements, reach=reach)
        study.row(
            {"features": "CDF", "n": n, "m": m, "permutations": n_elements, "range": reach},
            functools.partial(repeat, represent, least_squares, size, n_repeats),
            what="000 figure 4",
        )


def grid(*, quick: bool) -> list[tuple[int, int, int, str]]:
    """List bins, templates, permutations and range: right panel, with another range, and left panel."""
    bins, templates = ((1, 5), (1, 5)) if quick else ((1, 2, 5, 10, 25), (1, 5, 10, 25, 50, 100))
    few, elements = ((1, 5), (2,)) if quick else ((1, 10, 25), (1, 2, 5, 10, 30, 60))
    right = [(n, m, N_PERMUTATIONS, "[-s, s]") for n, m in itertools.product(bins, templates)]
    other_range = [(n, few[-1], N_PERMUTATIONS, "data") for n in bins]
    left = [(bins[-1], m, n_elements, "[-s, s]") for m, n_elements in itertools.product(few, elements)]
    return right + other_range + left


def repeat(
    represent: Callable[[int], Representation],
    classifier: Callable[[Any, Any], Any],
    size: int,
    n_repeats: int,
) -> dict[str, Any]:
    """Train on `size` sequences of each class and test on all others, time and again, with other templates."""
    is_positive = np.all([(sequences() == target).any(axis=1) for target in TARGETS], axis=0)
    accuracies = []
    for seed in range(n_repeats):
        features, rows = represent(seed)
        rng = np.random.default_rng(seed)
        train = np.concatenate(
            [rng.permutation(np.flatnonzero(is_positive == label))[:size] for label in (False, True)]
        )
        test = np.delete(np.arange(len(rows)), train)
        predicted = classifier(features[rows[train]], is_positive[train]).predict(features)
        accuracies.append(100 * float(np.mean(predicted[rows[test]] == is_positive[test])))
    return mean_of_runs(accuracies)


def cdf_of_sequences(
    n_bins: int, n_templates: int, seed: int, *, n_elements: int = N_PERMUTATIONS, reach: str = "[-s, s]"
) -> Representation:
    """CDF features; of all permutations they are the same for all sequences of one multiset."""
    of_all = n_elements == N_PERMUTATIONS
    deviation = 1 / np.sqrt(LENGTH * N_CHARACTERS)
    features = GroupCDF(
        n_templates,
        n_bins=n_bins,
        group=Permutation(),
        n_transforms=None if of_all else n_elements,
        thresholds=np.linspace(-REACH, REACH, 2 * n_bins + 1) * deviation if reach == "data" else None,
        random_state=seed,
    )
    representatives, rows = multisets() if of_all else (sequences(), everyone())
    samples = (one_hot(representatives) / np.sqrt(LENGTH)).astype(np.float64 if of_all else np.float32)
    return Representation(fewest_columns(features.fit_transform(samples)), rows)


def fewest_columns(features: NDArray[np.floating]) -> NDArray[np.floating]:
    """Turn features into no more columns than rows, of the same inner products."""
    return np.linalg.qr(features.T, mode="r").T if features.shape[1] > len(features) else features


@functools.cache
def haar_features() -> NDArray[np.float64]:
    """Features whose inner products are the Gaussian kernel averaged over permutations."""
    samples = one_hot(multisets()[0])
    gamma = median_gamma(samples.reshape(len(samples), -1), random_state=0)
    eigenvalues, vectors = np.linalg.eigh(average_fit(samples, base=Gaussian(gamma), group=Permutation()))
    return vectors * np.sqrt(np.maximum(eigenvalues, 0))


@functools.cache
def sequences() -> NDArray[np.intp]:
    """All sequences; (8^5, 5)."""
    return np.indices((N_CHARACTERS,) * LENGTH).reshape(LENGTH, -1).T


def everyone() -> NDArray[np.intp]:
    return np.arange(N_CHARACTERS**LENGTH)


@functools.cache
def multisets() -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One sequence of each orbit, and the orbit of each sequence."""
    return np.unique(np.sort(sequences(), axis=1), axis=0, return_inverse=True)


def one_hot(characters: NDArray[np.intp]) -> NDArray[np.float64]:
    """(n, 5) -> (n, 5, 8)."""
    return np.eye(N_CHARACTERS)[characters]


def sequences_by_size(rows: list[Row]) -> str:
    """Make the table of Figure 1."""
    shown = [row for row in select(rows, "000 figure 1") if row["where"]["per class"] in (10, 100, 1000)]
    return pivot(shown, "per class", cell=to_tenths, title="{:,} of each class")


def permutation_task(rows: list[Row]) -> str:
    """Make the tables of both panels of Figure 4, and a line of the representations without templates."""
    right = select(rows, "000 figure 4", features="CDF", permutations=N_PERMUTATIONS, range="[-s, s]")
    left = select(rows, "000 figure 4", features="CDF", n=25, range="[-s, s]")
    few = {row["where"]["m"] for row in left if row["where"]["permutations"] != N_PERMUTATIONS}
    left = [row for row in left if row["where"]["m"] in few]
    left.sort(key=lambda row: row["where"]["permutations"])
    others = [row for row in select(rows, "000 figure 4") if row["where"]["features"] != "CDF"]
    told = "; ".join(f"{row['where']['features']} {to_tenths(row['figures'])}" for row in others)
    panels = (pivot(panel, "m", cell=to_tenths, title="m = {}") for panel in (right, left))
    return "\n".join([*panels, f"Without templates: {told}."])


def written(study: Study) -> None:
    """Measure the right panel of Figure 2."""
    sizes, n_test, n_draws = ((10, 30), 500, 2) if study.quick else (SIZES_OF_DIGITS, 10_000, 10)
    mnist = study.arrays("kernel-data/mnist/mnist.npz")
    # Twice the largest training set, so that repeats differ in it.
    chosen = draw(mnist["y_train"], 2 * sizes[-1], seed=0)
    train, y = unit(mnist["X_train"][chosen]), mnist["y_train"][chosen]
    test, test_y = unit(mnist["X_test"][:n_test]), mnist["y_test"][:n_test]

    def right(seed: int, size: int, known: Any, unknown: Any) -> float:
        """Percentage of right test images, from some of the training images."""
        rows = draw(y, size, seed)
        return 100 * float(np.mean(least_squares(known[rows], y[rows]).predict(unknown) == test_y))

    few, many = ((1, 20), (50, 20)) if study.quick else ((5, 200), (50, 500))
    methods: dict[tuple[str, str], Any] = {
        ("raw pixels", ""): lambda: raw(train, test),
        (f"CDF{few}", "data"): lambda: features_of(cdf_of_digits(*few, "data"), train, test),
        (f"CDF{many}", "[-s, s]"): lambda: features_of_paper(*many, train, test),
    }
    for (method, reach), represent in methods.items():
        made = functools.cache(represent)

        def repeats(size: int, made: Any = made) -> dict[str, Any]:
            known, unknown = made()
            return mean_of_runs(right(seed, size, known, unknown) for seed in range(n_draws))

        for size in sizes:
            study.row(
                {"features": method, "thresholds": reach, "per class": size},
                functools.partial(repeats, size),
                what="000 figure 2, right",
            )


def cdf_of_digits(n_bins: int, n_templates: int, reach: str) -> GroupCDF:
    return GroupCDF(
        n_templates,
        n_bins=n_bins,
        group=GROUP,
        thresholds=np.linspace(-REACH, REACH, 2 * n_bins + 1) / 28 if reach == "data" else None,
        random_state=0,
    )


def features_of(transformer: GroupCDF, train: Images, test: Images) -> tuple[Any, Any]:
    return transformer.fit_transform(train), transformer.transform(test)


def features_of_paper(n: int, m: int, train: Images, test: Images) -> tuple[Images, Images]:
    """CDF features on [-s, s], whose constant columns are summed up in the last one."""
    transformer = cdf_of_digits(n, m, "[-s, s]").fit(train)
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
    fsdd = study.arrays("kernel-data/fsdd/fsdd.npz")
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


TABLES = {
    "sequences_by_size": sequences_by_size,
    "permutation_task": permutation_task,
    "digits_by_size": digits_by_size,
    "spoken_digits": spoken_digits,
}
