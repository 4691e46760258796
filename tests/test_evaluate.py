import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, jaccard_score

from segkit.errors import InputError
from segkit.evaluate import bootstrap_interval, compare_folders, confusion, score_masks
from segkit.images import write_mask


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n_classes=st.integers(2, 4))
def test_iou_and_dice_equal_scikit_learns(seed, n_classes):
    rng = np.random.default_rng(seed)
    truth, guess = rng.integers(n_classes, size=(2, 12, 15))
    scores = score_masks([truth], [guess], n_classes)
    labels = list(range(n_classes))
    np.testing.assert_allclose(
        scores.iou[0], jaccard_score(truth.ravel(), guess.ravel(), labels=labels, average=None)
    )
    np.testing.assert_allclose(
        scores.dice[0], f1_score(truth.ravel(), guess.ravel(), labels=labels, average=None)
    )
    assert scores.mean_iou[0] == pytest.approx(scores.iou[0].mean())


def test_mean_iou_of_two_classes_is_equation_8_1():
    truth = np.array([[0, 0, 0, 1, 1, 1]])
    guess = np.array([[0, 0, 1, 1, 1, 0]])
    n11, n12, n21, n22 = 2, 1, 1, 2
    expected = 0.5 * n11 / (n12 + n21 + n11) + 0.5 * n22 / (n12 + n21 + n22)
    assert score_masks([truth], [guess], 2).mean == pytest.approx(expected)


def test_a_class_in_neither_mask_is_undefined_and_counted():
    empty = np.zeros((3, 3), dtype=int)
    full = np.ones((3, 3), dtype=int)
    scores = score_masks([empty, empty, full], [empty, full, full], 2)
    np.testing.assert_array_equal(scores.iou, [[1, np.nan], [0, 0], [np.nan, 1]])
    np.testing.assert_array_equal(scores.mean_iou, [1, 0, 1])
    assert scores.n_undefined.tolist() == [1, 1]
    assert scores.class_iou.tolist() == [0.5, 0.5]


def test_unlabelled_pixels_count_nowhere():
    truth = np.array([[0, 1, 255, 255]])
    assert score_masks([truth], [np.array([[0, 1, 0, 1]])], 2).mean == 1
    np.testing.assert_array_equal(confusion(truth, [[1, 1, 1, 0]], 2), [[0, 1], [0, 1]])


def test_bootstrap_interval_covers_the_mean_of_normal_data():
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        low, high = bootstrap_interval(rng.normal(0.7, 0.1, size=40), n_resamples=500, random_state=trial)
        covered += low <= 0.7 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_bootstrap_interval_is_seeded_and_narrow_for_equal_values():
    values = np.linspace(0, 1, 20)
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(np.full(5, 0.25)) == (0.25, 0.25)


@pytest.mark.parametrize(
    ("truth", "guess", "message"),
    [
        (
            np.zeros((2, 2), int),
            np.zeros((2, 3), int),
            "true mask of shape (2, 2), prediction of shape (2, 3)",
        ),
        (
            np.full((2, 2), 7),
            np.zeros((2, 2), int),
            "true mask holds values 7 to 7: class ids must lie in 0..1",
        ),
        (np.full((2, 2), 255), np.zeros((2, 2), int), "true mask 0 has no labelled pixel"),
    ],
)
def test_bad_masks(truth, guess, message):
    with pytest.raises(InputError) as caught:
        score_masks([truth], [guess], 2)
    assert message in str(caught.value)


def test_numbers_of_masks_must_agree():
    with pytest.raises(InputError, match="0 true masks and 0 predictions"):
        score_masks([], [], 2)


@pytest.fixture
def folders(tmp_path, rng):
    truth = (rng.random((3, 8, 9)) < 0.5).astype(np.uint8) * 255
    for index, mask in enumerate(truth):
        write_mask(tmp_path / "masks" / "a" / f"{index}.png", mask)
        write_mask(tmp_path / "predictions" / "a" / f"{index}.tif", mask)
    return tmp_path / "predictions", tmp_path / "masks"


def test_folders_are_compared_by_stem(folders):
    predictions, masks = folders
    write_mask(predictions / "extra.png", np.zeros((2, 2), dtype=np.uint8))
    write_mask(predictions / "overlay" / "a" / "0.png", np.zeros((2, 2), dtype=np.uint8))
    result = compare_folders(predictions, masks, skip=("overlay",))
    assert result["mean_iou"] == 1
    assert [image["stem"] for image in result["images"]] == ["a/0", "a/1", "a/2"]
    assert [entry["name"] for entry in result["classes"]] == ["background", "foreground"]
    assert result["notes"] == [
        "1 predictions have no true mask and were left out",
        "3 images are too few to rank methods by: give 10 or more",
    ]


def test_every_true_mask_needs_a_prediction_of_its_size(folders):
    predictions, masks = folders
    (predictions / "a" / "1.tif").unlink()
    with pytest.raises(InputError, match=r"1 of 3 true masks have no prediction \(a/1\)"):
        compare_folders(predictions, masks)
    write_mask(predictions / "a" / "1.png", np.zeros((4, 4), dtype=np.uint8))
    with pytest.raises(InputError, match="sizes differ: a/1: true mask 8 x 9, prediction 4 x 4"):
        compare_folders(predictions, masks)
