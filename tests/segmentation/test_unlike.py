import numpy as np
import pytest

from segkit.segmentation.unlike import ALARM_OF_LIGHT, ALARM_OF_TEXTURE, KnownImages


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


@pytest.fixture
def known():
    return KnownImages.learn(*pictures(8), 0)


def notes(known, image, features):
    return known.compare(image, known.distance(features))


@pytest.mark.parametrize("n", [5, 10])
def test_images_of_the_same_kind_rarely_alarm(n):
    """At most as often as logarithms of normal values would, for texture and for brightness and contrast."""
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
        lambda X: X[:, [0, 0, 0, 3, 4, 5]],  # channels that are alike
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


def test_images_that_are_all_the_same_raise_no_errors():
    images, features = pictures(1)
    known = KnownImages.learn(images * 4, features * 4, 0)
    assert known.distance(features[0]) == pytest.approx(0, abs=1e-6)
    assert not known.compare(images[0], known.distance(features[0]))


def test_arrays_restore_it(known):
    again = KnownImages.from_arrays(known.to_arrays())
    images, features = pictures(1, seed=3, level=0.1)
    assert notes(again, images[0], features[0]) == notes(known, images[0], features[0]) != ()
    for name, shape in known.state_shapes(6, 1).items():
        assert known.to_arrays()[name].shape == shape
