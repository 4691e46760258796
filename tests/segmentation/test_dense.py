import numpy as np
import pytest
from sklearn.base import clone

from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.svm import LinearSVM
from segkit.features import (
    Channel,
    FeatureMaps,
    FilterBank,
    MultiscaleBank,
    OrbitAveraged,
    PositionBank,
    ScatteringBank,
    StackedBank,
)
from segkit.features.normalised import NormalisedBank, even_grid
from segkit.features.tiles import whole
from segkit.features.views import View
from segkit.kernels import LinearGaussianMixture, LinearMixture, MixtureRFF
from segkit.segmentation.dense import _sums, decide_and_read, decide_in

SHAPE = (21, 30)
KEPT = np.array([2, 3, 5, 8, 13, 21, 34, 55])


class GivenBank(FilterBank):
    """Gives the same maps whatever the image."""

    def __init__(self, stacks):
        self.stacks = stacks

    def channels(self, n_image_channels=3):
        return tuple(Channel(str(index), "given") for index in range(60))

    @property
    def halo(self):
        return 0

    def maps(self, image, channels=None):
        return [stack.subset(channels) for stack in self.stacks if np.isin(stack.indices, channels).any()]


@pytest.fixture
def stacks(rng):
    def maps(indices, shape, stride=1.0, offset=0.0):
        values = rng.standard_normal((len(indices), *shape)).astype(np.float32)
        return FeatureMaps(values, np.array(indices), stride, offset)

    return [
        maps([5, 8], SHAPE),
        maps([2, 13], (6, 8), 4.0, 1.5),
        maps([34], (6, 8), 4.0, (1.5, 1.5)),  # the same grid
        maps([21], (6, 8), 4.0, (1.5, 0.5)),  # and one beside it
        maps([3, 55], (3, 4), 8.0, 3.5),
    ]


def fitted(channels, mean, scale, kernels, svm):
    """A classifier of given parts."""
    classifier = PixelClassifier(None, kernels, svm)
    classifier.channels_, classifier.mean_, classifier.scale_ = channels, mean, scale
    classifier.kernels_, classifier.svm_ = kernels, svm
    return classifier


def normalised(bank, normalization):
    return StackedBank([bank], normalization=normalization)


def decide(image, bank, classifier, *progress):
    return decide_and_read(image, bank, [classifier], *progress)[0][0]


def learn(rng, bank, image, kept, kernels, n_classes):
    """Learn from the features of each pixel; give the arguments of `decide`, and the decisions expected."""
    mean, scale = rng.uniform(0.5, 2, (2, kept.size)).astype(np.float32)
    rows, cols = np.indices(image.shape[:2]).reshape(2, -1)
    X = (NormalisedBank(bank).sample(image, rows, cols, kept) - mean) / scale
    order = X[:, 0] + X[:, 2]
    labels = np.digitize(order, np.quantile(order, np.arange(1, n_classes) / n_classes))
    features = kernels.fit(X, labels).transform(X)
    svm = LinearSVM(C=0.01).fit(features, labels)
    expected = (features @ svm.coef_.T + svm.intercept_).reshape(*image.shape[:2], -1)
    assert np.ptp(expected) > 0.01
    return (image, bank, fitted(kept, mean, scale, kernels, svm)), expected


@pytest.mark.parametrize(("n_classes", "normalization"), [(2, "image"), (3, "set")])
@pytest.mark.parametrize(
    "kernels",
    [
        LinearMixture(),
        LinearGaussianMixture(n_components=60, gaussian_columns=np.isin(KEPT, [5, 8, 34]), random_state=0),
        MixtureRFF(n_components=60, random_state=0),
    ],
    ids=lambda k: type(k).__name__,
)
def test_maps_decide_as_the_features_of_each_pixel(rng, stacks, kernels, n_classes, normalization):
    bank = normalised(GivenBank(stacks), normalization)
    image = np.zeros((*SHAPE, 1), dtype=np.float32)
    before = [stack.values.copy() for stack in stacks]
    given, expected = learn(rng, bank, image, KEPT, kernels, n_classes)
    np.testing.assert_allclose(decide(*given), expected, atol=1e-5)
    for stack, values in zip(stacks, before, strict=True):
        np.testing.assert_array_equal(stack.values, values)


@pytest.mark.parametrize(
    ("seen", "normalization"),
    [([], "image"), ([0, 3, 9], "set"), ([9, 11], "image"), (range(15), "image"), (range(15), "set")],
    ids=["none", "some", "of the frame", "all", "all by set"],
)
def test_tiles_do_not_show(rng, monkeypatch, seen, normalization):
    scattering = ScatteringBank(J=2, L=2, angles="averaged", pixels=False)
    banks = [scattering, MultiscaleBank(sigma_max=1), PositionBank(), OrbitAveraged(clone(scattering))]
    bank, kept = normalised(StackedBank(banks), normalization), np.arange(15)
    kernels = LinearGaussianMixture(n_components=60, gaussian_columns=np.isin(kept, seen), random_state=0)
    image = rng.random((93, 80, 1), dtype=np.float32)
    given, expected = learn(rng, bank, image, kept, kernels, 2)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 50**2)
    assert [len(part.tiles(image.shape)) for part, _ in bank.split_by_bank(kept, 1)] == [4, 9, 4, 2]
    shapes = []
    for part in banks[:2]:

        def maps(image, channels=None, original=part.maps):
            shapes.append(image.shape)
            return original(image, channels)

        monkeypatch.setattr(part, "maps", maps)
    np.testing.assert_allclose(decide(*given), expected, atol=1e-4)
    # the average over symmetries sees farther than such a small image has room for
    assert 12 in seen or max(height * width for height, width, _ in shapes) < 93 * 80 / 1.5


@pytest.mark.parametrize("limit", [2**20, 50**2], ids=["one tile", "several"])
@pytest.mark.parametrize("gaussian", [[], [1, 4, 9, 13], range(15)], ids=["none", "some", "all"])
def test_banks_may_differ_in_what_is_centred(rng, monkeypatch, gaussian, limit):
    """Against all channels at all pixels, less the means of those of the first and the third bank."""
    scattering = ScatteringBank(J=2, L=2, angles="averaged", pixels=False)
    as_they_are = StackedBank([MultiscaleBank(sigma_max=1)], normalization="set")
    averaged = OrbitAveraged(StackedBank([scattering], normalization="set"))
    bank, kept = StackedBank([scattering, as_they_are, PositionBank(), averaged]), np.arange(15)
    own = [np.full(part.n_channels(1), part not in (as_they_are, averaged)) for part in bank.banks]
    centred = np.concatenate(own)[kept]
    assert 0 < centred.sum() < kept.size
    image = 0.6 + 0.4 * rng.random((93, 80, 1), dtype=np.float32)
    X = bank.dense(image, kept).reshape(kept.size, -1).T.astype(np.float64)
    X -= np.where(centred, bank.sample(image, *even_grid(image.shape), kept).mean(axis=0), 0)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    X = ((X - mean) / scale).astype(np.float32)
    kernels = LinearGaussianMixture(n_components=60, gaussian_columns=np.isin(kept, gaussian), random_state=0)
    features = kernels.fit(X, X[:, 0] > 0).transform(X)
    svm = LinearSVM(C=0.01).fit(features, X[:, 0] + X[:, 6] > 0)
    expected = (features @ svm.coef_.T + svm.intercept_).reshape(93, 80, 1)
    classifier = fitted(kept, mean.astype(np.float32), scale.astype(np.float32), kernels, svm)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", limit)
    decisions, at_grid = decide_and_read(image, bank, [classifier])
    np.testing.assert_allclose(decisions[0], expected, atol=1e-4 * np.ptp(expected))
    read = NormalisedBank(bank).sample(image, *even_grid(image.shape), kept)
    np.testing.assert_allclose(at_grid, read, atol=1e-5)


@pytest.mark.parametrize(("normalization", "n_columns"), [("image", 0), ("image", 3), ("set", 0), ("set", 3)])
def test_faint_patterns_on_bright_ground_are_decided_exactly(rng, normalization, n_columns):
    stack = FeatureMaps((0.9 + 1e-4 * rng.standard_normal((60, *SHAPE))).astype(np.float32), np.arange(60))
    bank, kept = normalised(GivenBank([stack]), normalization), np.arange(60)
    values = stack.values.reshape(60, -1).T.astype(np.float64)
    if normalization == "image":
        values -= stack.sample(*even_grid(SHAPE)).mean(axis=0, dtype=np.float64)
    mean, scale = values.mean(axis=0), values.std(axis=0)
    X = (values - mean) / scale
    labels = (X[:, 0] + X[:, 1] > 0).astype(int)
    kernels = LinearGaussianMixture(n_components=20, gaussian_columns=kept < n_columns, random_state=0).fit(
        X.astype(np.float32), labels
    )
    features = kernels.transform(X.astype(np.float32))
    svm = LinearSVM(C=0.01).fit(features, labels)
    expected = (features @ svm.coef_.T + svm.intercept_).reshape(*SHAPE, 1)
    classifier = fitted(kept, mean.astype(np.float32), scale.astype(np.float32), kernels, svm)
    image = np.zeros((*SHAPE, 1), dtype=np.float32)
    # 0.9 is known to 3e-8, which is 3e-4 standard deviations
    np.testing.assert_allclose(decide(image, bank, classifier), expected, atol=4e-3)


def test_tiles_of_a_large_image_are_followed(rng, monkeypatch):
    """Each bank by itself, then all that the nonlinear part needs; no map is computed before its turn."""
    banks = [MultiscaleBank(sigma_max=1), ScatteringBank(J=2, L=2, angles="averaged", pixels=False)]
    bank, kept = StackedBank(banks), np.arange(9)
    kernels = LinearGaussianMixture(n_components=60, gaussian_columns=kept < 3, random_state=0)
    image = rng.random((93, 80, 1), dtype=np.float32)
    given, expected = learn(rng, bank, image, kept, kernels, 2)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 50**2)
    n_tiles = [len(part.tiles(image.shape)) for part, _ in bank.split_by_bank(kept, 1)]
    computed, seen = [], []

    def maps(image, channels=None, original=banks[0].maps):
        computed.append(len(seen))
        return original(image, channels)

    def follow(items, description):
        for item in items:
            seen.append(description)
            yield item

    monkeypatch.setattr(banks[0], "maps", maps)
    np.testing.assert_allclose(decide(*given, follow), expected, atol=1e-4)
    assert seen == ["Tiles"] * sum(n_tiles) + ["Tiles, second pass"] * n_tiles[0]
    assert computed == [*range(1, n_tiles[0] + 1), *range(sum(n_tiles) + 1, len(seen) + 1)]


@pytest.mark.parametrize(
    ("kernels", "n_classes"),
    [(LinearMixture(), 3), (LinearGaussianMixture(n_components=40, random_state=0), 2)],
)
def test_decisions_in_a_part_of_an_image_are_those_of_the_image(rng, stacks, kernels, n_classes):
    bank = GivenBank(stacks)
    image = np.zeros((*SHAPE, 1), dtype=np.float32)
    (_, _, classifier), _ = learn(rng, bank, image, KEPT[:-1], clone(kernels), n_classes)
    expected = decide(image, bank, classifier)
    means = bank.sample(image, *even_grid(SHAPE), classifier.channels_).mean(axis=0)
    view = View(whole(SHAPE), bank.maps(image, np.array([2, 3, 5, 8, 13, 21, 34, 55])))
    for core in ((slice(0, 21), slice(0, 30)), (slice(4, 9), slice(17, 30))):
        np.testing.assert_allclose(decide_in(view.within(core), classifier, means), expected[core], atol=1e-5)


@pytest.mark.parametrize(
    ("kernels", "normalization"),
    [(LinearMixture(), "image"), (MixtureRFF(n_components=60, random_state=0), "set")],
)
@pytest.mark.parametrize("limit", [2**20, 50**2])
def test_the_coarse_grid_is_read_in_the_same_pass(rng, monkeypatch, kernels, normalization, limit):
    """All kept channels, linear ones too, of an image as a whole and tile by tile."""
    banks = [MultiscaleBank(sigma_max=1), ScatteringBank(J=2, L=2, angles="averaged", pixels=False)]
    bank, kept = normalised(StackedBank(banks), normalization), np.arange(9)
    image = rng.random((93, 80, 1), dtype=np.float32)
    given, _ = learn(rng, bank, image, kept, kernels, 2)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", limit)
    *where, classifier = given
    _, features = decide_and_read(*where, [classifier])
    expected = NormalisedBank(bank).sample(image, *even_grid(image.shape), kept)
    np.testing.assert_allclose(features, expected, atol=1e-5)


def test_several_classifiers_decide_as_each_by_itself(rng, stacks):
    """They share maps, and differ in channels and classes; the grid is read by the first."""
    bank = GivenBank(stacks)
    image = np.zeros((*SHAPE, 1), dtype=np.float32)
    first, second = (
        learn(rng, bank, image, kept, LinearGaussianMixture(n_components=20, random_state=0), n)[0][2]
        for kept, n in ((KEPT[:5], 3), (KEPT[3:], 2))
    )
    decisions, features = decide_and_read(image, bank, [first, second])
    assert [maps.shape for maps in decisions] == [(*SHAPE, 3), (*SHAPE, 1)]
    for maps, classifier in zip(decisions, (first, second), strict=True):
        np.testing.assert_allclose(maps, decide(image, bank, classifier), atol=1e-5)
    expected = NormalisedBank(bank).sample(image, *even_grid(image.shape), KEPT[:5])
    np.testing.assert_allclose(features, expected, atol=1e-5)


def test_a_level_is_the_mean_of_a_few_cells_and_kept():
    """Of 256 cells every fourth one, of fewer than 64 all."""
    rng = np.random.default_rng(0)
    large = FeatureMaps(rng.random((2, 16, 16), dtype=np.float32), np.array([4, 9]))
    small = FeatureMaps(rng.random((1, 5, 7), dtype=np.float32), np.array([7]), 2.0)
    slopes, level = rng.standard_normal((3, 3)).astype(np.float32), np.full(3, np.nan, dtype=np.float32)
    first, second = _sums([large, small], np.array([4, 7, 9]), slopes, level)
    means = [large.values[0].ravel()[::4].mean(), small.values.mean(), large.values[1].ravel()[::4].mean()]
    np.testing.assert_allclose(level, means, rtol=1e-6)
    centred = large.values - level[[0, 2], None, None]
    np.testing.assert_allclose(
        first.values, np.tensordot(slopes[:, [0, 2]], centred, 1), rtol=1e-4, atol=1e-6
    )
    expected = slopes[:, 1, None, None] * (small.values - level[1])
    np.testing.assert_allclose(second.values, expected, rtol=1e-4, atol=1e-6)
    assert (first.indices.tolist(), second.stride) == ([0, 1, 2], 2.0)
    before = level.copy()
    list(_sums([FeatureMaps(large.values + 1, large.indices)], np.array([4, 7, 9]), slopes, level))
    np.testing.assert_array_equal(level, before)


@pytest.mark.parametrize(("at_once", "n_blocks"), [(630, 1), (629, 2), (100, 7), (1, 21)])
def test_threads_share_the_rows_of_an_image(rng, stacks, monkeypatch, at_once, n_blocks):
    bank = normalised(GivenBank(stacks), "set")
    image = np.zeros((*SHAPE, 1), dtype=np.float32)
    given, expected = learn(rng, bank, image, KEPT, MixtureRFF(n_components=60, random_state=0), 2)
    shared = []

    def in_threads(function, blocks):
        shared.append(blocks)
        return map(function, blocks)

    monkeypatch.setattr("segkit.segmentation.dense.in_threads", in_threads)
    monkeypatch.setattr("segkit.segmentation.dense.PIXELS_PER_BLOCK", at_once)
    np.testing.assert_allclose(decide(*given), expected, atol=1e-5)
    [blocks] = shared
    assert len(blocks) == n_blocks
    np.testing.assert_array_equal(np.concatenate(blocks), np.arange(21))
