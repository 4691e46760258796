import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist

from segkit.segmentation.unlike import (
    _MEASURES,
    ALARM_OF_LIGHT,
    ALARM_OF_TEXTURE,
    N_FREQUENCIES,
    SHARE_OF_NOISE,
    KnownImages,
    _distinct,
    _least_distances,
    _light,
    _outside,
    _texture,
    _told_apart,
)

MEAN = _MEASURES[0]


def pictures(n, seed=0, level=0.5, shape=(40, 50), n_channels=1):
    """Images of one kind, and features of them: noise whose spread differs a little from image to image."""
    rng = np.random.default_rng(seed)
    images = [
        (level * np.exp(rng.normal(0, 0.1)) + rng.normal(0, 0.05, (*shape, n_channels))).astype(np.float32)
        for _ in range(n)
    ]
    features = [
        (rng.standard_normal((400, 6)) * np.exp(rng.normal(0, 0.1, 6))).astype(np.float32) for _ in range(n)
    ]
    return images, features


def half(image, change):
    """Change the left half of an image."""
    return np.concatenate([change(image[:, :25]), image[:, 25:]], axis=1)


def inverted(image):
    return 1.2 - image


def bright(image):
    """A few spots among equal pixels: as bright on average, and much more skewed."""
    spots = np.zeros_like(image)
    spots[::6, ::6] = 0.4
    return image + spots - spots.mean()


@pytest.fixture
def known():
    return KnownImages.learn(*pictures(8), 0)


def notes(known, image, features):
    return known.compare(image, known.distance(features))


@pytest.mark.parametrize("n", [5, 10])
def test_images_of_the_same_kind_rarely_alarm(n):
    """At most as often as normal values would, for texture and for light."""
    told = []
    for seed in range(40):
        images, features = pictures(n + 5, seed)
        known = KnownImages.learn(images[:n], features[:n], seed)
        told += [bool(notes(known, *pair)) for pair in zip(images[n:], features[n:], strict=True)]
    assert 0 < np.mean(told) < ALARM_OF_TEXTURE + ALARM_OF_LIGHT + 0.03


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda image: 0.3 * image, "darker than the training images (mean 0."),
        (lambda image: 1 - 0.3 * (1 - image), "brighter than the training images (mean 0."),
        (lambda image: 0.5 + 0.1 * (image - 0.5), "lower in contrast than the training images (standard deviation"),
        (lambda image: 0.5 + 6 * (image - 0.5), "higher in contrast than the training images (standard deviation"),
        (lambda image: half(image, inverted), "halves more different in brightness than the training images (difference"),
        (lambda image: half(image, bright), "one half with more bright parts than the training images (highest skewness"),
        (lambda image: 1 - half(1 - image, bright), "one half with more dark parts than the training images (lowest"),
        (lambda image: image[:20, :25], "smaller than the training images (20 x 25 pixels, training from 40 x 50)"),
    ],
)  # fmt: skip
def test_each_change_of_an_image_is_told(known, change, words):
    images, features = pictures(1, seed=9)
    assert not notes(known, images[0], features[0])
    assert any(note.startswith(words) for note in notes(known, change(images[0]), features[0]))


@pytest.mark.parametrize(
    "change",
    [
        lambda X: 0.2 * X,  # smooth
        lambda X: X * np.array([1, 1, 1, 1, 1e-3, 1e-3], dtype=np.float32),  # without fine detail
        lambda X: np.abs(X) - np.abs(X).mean(axis=0),
        lambda X: X[:, [0, 0, 0, 0, 0, 0]],  # channels that are alike
    ],
)
def test_another_texture_is_told_with_its_distance(known, change):
    images, features = pictures(1, seed=9)
    changed = change(features[0]).astype(np.float32)
    [note] = notes(known, images[0], changed)
    assert note == (
        f"texture unlike the training images (distance {known.distance(changed):.2g}, held-out training images up to "
        f"{known.distances.max():.2g})"
    )


def test_the_channel_that_is_farthest_outside_is_named():
    images, features = pictures(8, n_channels=3)
    known = KnownImages.learn(images, features, 0)
    image = pictures(1, seed=9, n_channels=3)[0][0] * np.array([1, 0.5, 0.3], dtype=np.float32)
    assert notes(known, image, features[0])[0].startswith("darker in blue than the training images (mean 0.1")
    images, features = pictures(8, n_channels=2)
    known = KnownImages.learn(images, features, 0)
    image = pictures(1, seed=9, n_channels=2)[0][0] * np.array([1, 0.3], dtype=np.float32)
    assert notes(known, image, features[0])[0].startswith("darker in channel 2 than")


def test_training_images_are_as_far_apart_as_a_naive_loop_finds():
    """Kernel distance and distance of logarithmic spreads, each in units of its mean over training images."""
    images, features = pictures(5)
    known = KnownImages.learn(images, features, 0)
    waves = known.frequencies

    def embed(X):
        return np.concatenate([np.cos(X @ waves).mean(0), np.sin(X @ waves).mean(0)]) / np.sqrt(
            waves.shape[1]
        )

    def spread(X):
        return np.log(X.std(axis=0) + 0.01)

    apart = np.array(
        [
            [
                [np.linalg.norm(embed(X) - embed(Y)), np.sqrt(np.mean((spread(X) - spread(Y)) ** 2))]
                for Y in features
            ]
            for X in features
        ]
    )
    others = [[k for k in range(5) if k != index] for index in range(5)]
    scales = [
        np.exp(np.mean([np.log(apart[index, others[index], part].min()) for index in range(5)]))
        for part in (0, 1)
    ]
    both = np.sqrt((apart**2 / np.square(scales)).sum(axis=2) / 2)
    expected = [both[index, others[index]].min() for index in range(5)]
    np.testing.assert_allclose(known.distances, expected, rtol=1e-4)
    assert known.distance(features[2]) == pytest.approx(0, abs=1e-4)


def test_two_images_are_too_few():
    assert KnownImages.learn(*pictures(2), 0) is None


def nearly(array, seed):
    """Give an array with a hundredth of a percent of noise."""
    return (array * (1 + 1e-4 * np.random.default_rng(seed).standard_normal(array.shape))).astype(np.float32)


@pytest.mark.parametrize("copy", [lambda array: array, lambda array: nearly(array, 1)])
def test_copies_count_once(copy):
    """Limits, scales and distances are those of the different images, however often each is there."""
    images, features = pictures(6)
    known = KnownImages.learn(images, features, 0)
    copied = KnownImages.learn([*images, *map(copy, images[:3])], [*features, *map(copy, features[:3])], 0)
    assert len(copied.light) == 6
    np.testing.assert_allclose(copied.light, known.light)
    # the bandwidth is that of pixels drawn anew
    np.testing.assert_allclose(copied.scales, known.scales, rtol=0.05)
    assert copied.farthest == pytest.approx(known.farthest, rel=0.05)
    another = pictures(1, seed=9)[1][0]
    assert copied.distance(another) == pytest.approx(known.distance(another), rel=0.05)
    assert copied.distance(0.2 * another) > copied.farthest


@pytest.mark.parametrize("n_different", [1, 2])
def test_copies_of_two_images_are_too_few(n_different):
    images, features = pictures(n_different)
    assert KnownImages.learn(images * 4, features * 4, 0) is None
    several = [nearly(one, seed) for seed in range(4) for one in features]
    assert KnownImages.learn(images * 4, several, 0) is None


def test_of_textures_alike_distances_stay_sane():
    """Images of equal standard deviations: the unit is not below what could be told apart."""
    rng = np.random.default_rng(0)
    image, base = (one[0] for one in pictures(1))
    features = [rng.permuted(base, axis=0) for _ in range(4)]
    known = KnownImages.learn([image] * 4, features, 0)
    assert known.scales[1] == pytest.approx(SHARE_OF_NOISE / np.sqrt(len(base)))
    assert known.distance(pictures(1, seed=9)[1][0]) < 50
    assert known.farthest >= 1.1 * np.exp(np.log(known.distances).mean()) * (1 - 1e-6)


def test_sampling_noise_is_that_of_independent_pixels():
    """Both parts of the least distance, against two samples of one texture, over many pairs."""
    _, features = pictures(1)
    rng = np.random.default_rng(3)
    waves = KnownImages.learn(*pictures(4), 0).frequencies
    textures = np.array(
        [_texture(rng.standard_normal((400, 6)).astype(np.float32), waves) for _ in range(60)]
    )
    parts = np.split(textures, [2 * N_FREQUENCIES], axis=1)
    found = [np.sqrt(np.mean(pdist(part) ** 2)) for part in parts]
    expected = _least_distances(textures, len(features[0])) / SHARE_OF_NOISE
    np.testing.assert_allclose(found, expected, rtol=0.1)


@pytest.mark.parametrize("change", [1 / 65535, 0.01, 0.05, -0.05])
def test_small_changes_of_equally_bright_images_are_not_told(change):
    images, features = pictures(5)
    equal = [(0.5 + 0.05 * (image - image.mean()) / image.std()).astype(np.float32) for image in images]
    known = KnownImages.learn(equal, features, 0)
    assert known.compare((equal[0] * (1 + change)).astype(np.float32), 0) == ()
    assert known.compare((0.5 + (equal[0] - 0.5) * (1 + change)).astype(np.float32), 0) == ()
    [note] = known.compare(equal[0] + np.float32(0.06), 0)
    assert note == "brighter than the training images (mean 0.56, training 0.5 to 0.5)"


def test_numbers_have_the_digits_to_differ():
    assert _told_apart(0.5, 0.3, 0.7) == ["0.5", "0.3", "0.7"]
    assert _told_apart(0.4996, 0.49961, 0.7) == ["0.4996", "0.49961", "0.7"]
    assert _told_apart(1.04, 1.0) == ["1.04", "1"]
    assert _told_apart(2.0, 2.0) == ["2", "2"]


def test_arrays_restore_it(known):
    again = KnownImages.from_arrays(known.to_arrays())
    images, features = pictures(1, seed=3, level=0.1)
    assert notes(again, images[0], features[0]) == notes(known, images[0], features[0]) != ()
    for name, shape in known.state_shapes(6, 1).items():
        assert known.to_arrays()[name].shape == shape


def test_the_first_of_several_copies_is_chosen():
    rows = np.array([[0.0], [1.0], [1.1], [5.0], [0.5], [6.5], [2.2]])
    assert _distinct(rows) == [0, 2, 3, 5, 6]


def test_noise_of_equal_pixels_is_that_of_rounding():
    textures = np.zeros((3, 2 * N_FREQUENCIES + 2))
    textures[:, 0] = 1
    found = _least_distances(textures, 100)
    np.testing.assert_allclose(found, 0.25 * np.sqrt([np.finfo(np.float32).eps / 100, 1 / 100]))
    textures[:, 0] = 0.6
    np.testing.assert_allclose(_least_distances(textures, 100)[0], 0.25 * np.sqrt(2 * (1 - 0.36) / 100))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([0.5, 0.2], None),
        ([0.5, 0.1], "darker in channel 2 than the training images (mean 0.1, training 0.2 to 0.2)"),
        ([0.9, 0.25], "brighter in channel 1 than the training images (mean 0.9, training 0.5 to 0.5)"),
        ([0.545, 0.22], None),
        ([0.555, 0.2], "brighter in channel 1 than the training images (mean 0.56, training 0.5 to 0.5)"),
        ([0.0, 0.2], "darker in channel 1 than the training images (mean 0, training 0.5 to 0.5)"),
    ],
)
def test_the_limits_of_equal_values_are_a_tenth(value, told):
    known = np.tile([0.5, 0.2], (4, 1))
    assert _outside(np.array(value), known, MEAN) == told


@pytest.mark.parametrize("shape", [(40, 50), (1, 60), (60, 1), (1, 1), (700, 900)])
def test_light_is_that_of_the_image_and_its_halves(shape):
    """As SciPy computes it, of all pixels of a small image, of some of a large one."""
    image = np.random.default_rng(0).gamma(2, 0.1, (*shape, 2)).astype(np.float32)
    image[:, :, 1] = 1 - image[:, :, 1]
    parts = [image[: shape[0] // 2 + shape[0] % 2], image[shape[0] // 2 + shape[0] % 2 :]]
    parts += [image[:, : shape[1] // 2 + shape[1] % 2], image[:, shape[1] // 2 + shape[1] % 2 :]]
    parts = [part.reshape(-1, 2).astype(float) for part in parts if part.size]
    skewness = np.nan_to_num([stats.skew(part) if len(part) > 1 else (0, 0) for part in parts])
    means = np.array([part.mean(axis=0) for part in parts])
    found = _light(image)
    np.testing.assert_allclose(found[:2], [image.mean((0, 1), float), image.std((0, 1), float)], rtol=1e-6)
    np.testing.assert_allclose(found[4], np.ptp(means, axis=0), atol=1e-6)
    tolerance = 0.02 if shape == (700, 900) else 1e-5
    np.testing.assert_allclose(found[2:4], [skewness.min(axis=0), skewness.max(axis=0)], atol=tolerance)


def test_sides_that_nobody_watches_are_not_told():
    """Halves that are alike, and a lowest skewness above the usual one."""
    known = np.random.default_rng(0).normal(0.5, 0.05, (6, 1))
    for place, value in ((2, 5.0), (3, -5.0), (4, -5.0)):
        assert _outside(np.array([value]), known, _MEASURES[place]) is None
        assert _outside(np.array([-value]), known, _MEASURES[place]) is not None


def test_channels_share_the_probability_of_a_false_alarm():
    """So do the measures: two with two sides, three with one."""
    logs = np.log(0.3) + np.array([-0.2, 0.1, 0.3, -0.2, 0.05])
    width = stats.t.ppf(1 - 0.005 / 7, 4) * logs.std(ddof=1) * np.sqrt(6 / 5)
    for side, word in ((-1, "darker"), (1, "brighter")):
        for part, is_told in ((0.99, False), (1.01, True)):
            value = np.exp(logs.mean() + side * part * width)
            found = _outside(np.array([value]), np.exp(logs)[:, None], MEAN)
            assert (found is not None) == is_told
            assert not is_told or found.startswith(f"{word} than the training images (mean ")


@pytest.mark.parametrize(
    ("shape", "is_small"), [((20, 25), True), ((21, 25), False), ((20, 26), False), ((9, 9), True)]
)
def test_half_the_height_and_width_are_small(known, shape, is_small):
    image = pictures(1, seed=3)[0][0][: shape[0], : shape[1]]
    assert any(note.startswith("smaller than") for note in known.compare(image, 0)) == is_small


def test_beyond_the_farthest_a_texture_is_told(known):
    image = pictures(1, seed=3)[0][0]
    assert known.compare(image, known.farthest) == ()
    [note] = known.compare(image, known.farthest * 1.001)
    assert note.startswith("texture unlike the training images (distance ")
    logs = np.log(known.distances)
    width = max(stats.t.ppf(0.99, 7) * logs.std(ddof=1) * np.sqrt(9 / 8), np.log(1.1))
    assert known.farthest == pytest.approx(np.exp(logs.mean() + width))
    assert known.explain() == (
        f"Unlike images: the texture of a training image is up to {known.distances.max():.2g} from the nearest of the "
        f"others. A new image beyond {known.farthest:.2g} gets a warning, and so do brightness, contrast, halves and size "
        "that are far from those of the 8 different training images."
    )
