import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from segkit.baselines.forest import PixelForest
from segkit.cli.phantom import make_demo_set
from segkit.errors import InputError
from segkit.features import MultiscaleBank, ScatteringBank


@pytest.fixture(scope="module")
def pairs():
    return make_demo_set(3, shape=(64, 96))


@pytest.fixture(scope="module")
def forest(pairs):
    images, masks = pairs
    return PixelForest(n_estimators=20, training_pixels=3000).fit(images[:2], masks[:2])


def test_it_learns(pairs, forest):
    images, masks = pairs
    assert forest.score(images[:2], masks[:2]) > 0.9
    assert forest.score(images[2:], masks[2:]) > 0.5


@pytest.mark.parametrize(
    "bank", [MultiscaleBank(sigma_max=2), ScatteringBank(J=1, L=2)], ids=["multiscale", "scattering"]
)
def test_it_is_scikit_learns_forest_on_the_banks_maps(pairs, bank):
    """With every pixel drawn nothing is left to chance but the trees."""
    image, mask = pairs[0][0][:20, :24], np.tile(np.arange(24) > 11, (20, 1)).astype(int)
    ours = PixelForest(bank, n_estimators=5, training_pixels=480).fit([image], [mask])
    X = bank.dense(image).reshape(bank.n_channels(3), -1).T
    theirs = RandomForestClassifier(5, random_state=0).fit(X, mask.ravel(), sample_weight=np.ones(480))
    expected = theirs.predict_proba(X).reshape(20, 24, 2)
    np.testing.assert_allclose(ours.predict_proba(image), expected, atol=1e-6)


def test_labels_are_the_most_probable_class(pairs, forest):
    labels, probability = forest.predict(pairs[0][2], return_proba=True)
    np.testing.assert_array_equal(labels, forest.classes_[probability.argmax(axis=2)])
    np.testing.assert_allclose(probability.sum(axis=2), 1, atol=1e-6)


def test_blocks_of_rows_change_nothing(pairs, forest, monkeypatch):
    whole = forest.predict_proba(pairs[0][2])
    monkeypatch.setattr("segkit.baselines.forest._PIXELS_AT_ONCE", 300)
    np.testing.assert_array_equal(forest.predict_proba(pairs[0][2]), whole)


def test_unlabelled_pixels_teach_nothing(pairs):
    image, mask = pairs[0][0], pairs[1][0].astype(np.uint8)
    hidden = mask.copy()
    hidden[:, 48:] = 255
    half = PixelForest(n_estimators=5, training_pixels=10**6).fit([image], [hidden])
    drawn = []
    original = MultiscaleBank.sample
    bank = MultiscaleBank()
    bank_sample = lambda self, image, rows, cols, channels=None: (  # noqa: E731
        drawn.append(cols.max()) or original(self, image, rows, cols, channels)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MultiscaleBank, "sample", bank_sample)
        PixelForest(bank, n_estimators=5, training_pixels=10**6).fit([image], [hidden])
    assert max(drawn) < 48
    assert half.classes_.tolist() == [0, 1]


def test_images_must_be_of_the_kind_trained_on(forest):
    with pytest.raises(InputError, match="image with 1 channel, the model was trained on 3"):
        forest.predict(np.zeros((8, 8)))
