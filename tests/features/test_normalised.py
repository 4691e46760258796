import numpy as np
import pytest

from segkit.features import MultiscaleBank, OrbitAveraged, ScatteringBank, StackedBank
from segkit.features.normalised import GRID, NormalisedBank, even_grid
from segkit.images.sampling import draw_pixels

BANK = StackedBank([ScatteringBank(J=2, L=2, angles="averaged"), MultiscaleBank(sigma_max=2)])
PER_SET = StackedBank(BANK.banks, normalization="set")


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).random((44, 60, 1)).astype(np.float32)


def test_pixels_spread_evenly_from_corner_to_corner():
    rows, cols = even_grid((31, 44))
    assert rows.size == cols.size == GRID**2
    assert (rows.min(), rows.max(), cols.min(), cols.max()) == (0, 30, 0, 43)
    np.testing.assert_allclose(np.diff(np.unique(rows)), 30 / (GRID - 1))


def test_turned_images_have_the_same_mean():
    image = np.random.default_rng(0).random((31, 44)).astype(np.float32)
    bank = MultiscaleBank(sigma_max=2)
    means = [
        bank.sample(picture, *even_grid(picture.shape)).mean(axis=0)
        for picture in (image, np.rot90(image).copy())
    ]
    np.testing.assert_allclose(means[0], means[1], atol=1e-5)


def test_features_are_about_their_mean_over_the_image(image):
    rows, cols = np.array([3, 20, 43]), np.array([0, 31, 59])
    X = BANK.sample(image, rows, cols)
    np.testing.assert_array_equal(NormalisedBank(PER_SET).sample(image, rows, cols, None), X)
    mean = BANK.sample(image, *even_grid((44, 60))).mean(axis=0)
    np.testing.assert_allclose(NormalisedBank(BANK).sample(image, rows, cols, None), X - mean, atol=1e-5)


def test_each_bank_says_which_of_its_channels_are_centred(image):
    first, second = BANK.banks
    bank = StackedBank([first, StackedBank([second], normalization="set")])
    n_first = first.n_channels(1)
    assert bank.centred(1).tolist() == [True] * n_first + [False] * second.n_channels(1)
    np.testing.assert_array_equal(OrbitAveraged(bank).centred(1), bank.centred(1))
    channels, rows, cols = np.array([0, n_first - 1, n_first, n_first + 2]), np.arange(5), np.arange(5)
    X = bank.sample(image, rows, cols, channels)
    X[:, :2] -= bank.sample(image, *even_grid(image.shape), channels[:2]).mean(axis=0)
    np.testing.assert_allclose(NormalisedBank(bank).sample(image, rows, cols, channels), X, atol=1e-5)


def test_draws_are_read_in_one_pass(image):
    images = [image, image[::-1] + 1]
    ids = [np.random.default_rng(1).integers(0, 2, (44, 60)) for _ in images]
    rng = np.random.default_rng(2)
    draws = [draw_pixels(ids, 2, n_pixels, rng) for n_pixels in (10, 30)]
    bank, channels, passes = NormalisedBank(BANK), np.array([1, 4, 9]), []

    def follow(items, description):
        passes.append(description)
        return items

    found = bank.sample_draws(images, draws, channels, follow, "reading")
    assert passes == ["reading"]
    for X, drawn in zip(found, draws, strict=True):
        assert X.shape == (drawn.label.size, 3)
        for index, one in enumerate(images):
            mine = drawn.image == index
            expected = bank.sample(one, drawn.row[mine], drawn.col[mine], channels)
            np.testing.assert_allclose(X[mine], expected, atol=1e-5)


def test_positions_stay_whole_numbers_where_nothing_is_centred(image, monkeypatch):
    """Banks that are dear at each pixel look at those only which they are asked for, if they are pixels."""
    kinds = []

    def sample(image, rows, cols, channels=None, *, progress):
        kinds.append((rows.dtype.kind, rows.size))
        return np.zeros((rows.size, 2), dtype=np.float32)

    bank = MultiscaleBank()
    monkeypatch.setattr(bank, "sample", sample)
    per_set = StackedBank([bank], normalization="set")
    NormalisedBank(per_set).sample(image, np.arange(3), np.arange(3), np.arange(2))
    assert kinds == [("i", 3)]
