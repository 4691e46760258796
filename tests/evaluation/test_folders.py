import unicodedata

import numpy as np
import pytest

from segkit.errors import InputError
from segkit.evaluation.folders import compare_folders, read_folders, score_image
from segkit.evaluation.statistics import bootstrap_interval
from segkit.images import write_mask


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
        "1 prediction without a true mask left out",
        "no firm estimate from 3 images: score 10 or more",
    ]


def test_every_true_mask_needs_a_prediction_of_its_size(folders):
    predictions, masks = folders
    (predictions / "a" / "1.tif").unlink()
    with pytest.raises(InputError, match=r"1 of 3 true masks have no prediction \(a/1\)"):
        compare_folders(predictions, masks)
    write_mask(predictions / "a" / "1.png", np.zeros((4, 4), dtype=np.uint8))
    with pytest.raises(InputError, match="sizes differ: a/1: true mask 8 x 9, prediction 4 x 4"):
        compare_folders(predictions, masks)


@pytest.mark.parametrize(("guessed", "told"), [([0, 1], "0, 1"), ([0, 1, 2], "0, 1, 2"), ([3], "3")])
def test_masks_of_other_values_are_refused(folders, guessed, told):
    predictions, masks = folders
    for path in (predictions / "a").iterdir():
        write_mask(path, np.resize(np.array(guessed, dtype=np.uint8), (8, 9)))
    with pytest.raises(
        InputError, match=f"predictions hold {told}, true masks 0, 255: save both with the same value"
    ):
        compare_folders(predictions, masks)


@pytest.mark.parametrize(
    ("true", "guessed"), [([0, 1, 2], [0, 1, 3]), ([0], [0, 1]), ([0, 1], [0]), ([0, 1, 255], [0, 1])]
)
def test_classes_may_be_rare(folders, true, guessed):
    predictions, masks = folders
    for folder, values in ((predictions, guessed), (masks, true)):
        for path in (folder / "a").iterdir():
            write_mask(path, np.resize(np.array(values, dtype=np.uint8), (8, 9)))
    strange = set(guessed) - set(true)
    told = [f"predictions hold {value}, no true mask does" for value in strange]
    assert compare_folders(predictions, masks)["notes"][:-1] == told


def test_a_prediction_in_two_formats_is_refused(folders):
    predictions, masks = folders
    write_mask(predictions / "a" / "1.png", np.zeros((8, 9), dtype=np.uint8))
    with pytest.raises(InputError, match=r"same stem as 1\.tif, expected one file: remove one"):
        compare_folders(predictions, masks)


def test_accents_spelled_in_two_ways_are_one_name(tmp_path):
    mask = np.array([[0, 255]], dtype=np.uint8)
    write_mask(tmp_path / "masks" / f"{unicodedata.normalize('NFC', 'é')}.png", mask)
    write_mask(tmp_path / "predictions" / f"{unicodedata.normalize('NFD', 'é')}.png", mask)
    assert compare_folders(tmp_path / "predictions", tmp_path / "masks")["mean_iou"] == 1


def test_pages_of_a_file_are_resampled_together(tmp_path, rng):
    for name in ("one", "two"):
        truth = (rng.random((6, 8, 9)) < 0.5).astype(np.uint8)
        write_mask(tmp_path / "masks" / f"{name}#1.tif", truth)
        write_mask(tmp_path / "predictions" / f"{name}#1.tif", truth * (rng.random((6, 8, 9)) < 0.8))
    found = read_folders(tmp_path / "predictions", tmp_path / "masks")
    assert found.stems[:2] == ["one#1#1", "one#1#2"]
    assert found.files == ["one#1"] * 6 + ["two#1"] * 6
    assert found.pages == [*range(6), *range(6)]
    result = compare_folders(tmp_path / "predictions", tmp_path / "masks")
    scores = [image["mean_iou"] for image in result["images"]]
    assert result["interval"] == list(bootstrap_interval(scores, found.files))
    assert result["notes"] == [
        "12 pages of 2 files: intervals resample files, not pages",
        "no firm estimate from 2 files: score 10 or more",
    ]


def test_probabilities_must_be_of_the_classes_asked_for():
    with pytest.raises(InputError, match=r"probabilities of shape \(1, 2, 3\) for 2 classes"):
        score_image([[0, 1]], [[0, 1]], np.zeros((1, 2, 3)), 2)


def test_object_scores_are_beside_mean_iou(folders):
    predictions, masks = folders
    write_mask(predictions / "a" / "1.tif", np.zeros((8, 9), dtype=np.uint8))
    result = compare_folders(predictions, masks)
    foreground = result["classes"][1]
    assert (result["object_iou"], result["object_dice"]) == (foreground["iou"], foreground["dice"])
    assert result["object_iou"] == pytest.approx(2 / 3)
    assert [image["object_iou"] for image in result["images"]] == [1, 0, 1]
    assert result["object_iou_interval"] == list(bootstrap_interval([1, 0, 1]))
    low, high = result["object_dice_interval"]
    assert low < result["object_dice"] < high


def test_images_without_objects_have_no_object_score(tmp_path):
    mask = np.zeros((2, 2), dtype=np.uint8)
    for name in ("masks", "predictions"):
        write_mask(tmp_path / name / "a.png", mask)
        write_mask(tmp_path / name / "b.png", np.eye(2, dtype=np.uint8))
    result = compare_folders(tmp_path / "predictions", tmp_path / "masks")
    assert [image["object_dice"] for image in result["images"]] == [None, 1]
    assert result["object_dice"] == 1


@pytest.mark.parametrize(("predicted", "true"), [("", "_mask"), ("_pred_mask", "_pred"), ("-labels", "")])
def test_either_side_may_have_a_suffix(tmp_path, predicted, true):
    for name, suffix in (("predictions", predicted), ("masks", true)):
        write_mask(tmp_path / name / "a" / f"x{suffix}.png", np.eye(2, dtype=np.uint8))
    found = read_folders(tmp_path / "predictions", tmp_path / "masks")
    assert found.stems == found.files == ["a/x_pred" if true == "_pred" else "a/x"]
    assert found.sources == [tmp_path / "masks" / "a" / f"x{true}.png"]


def test_masks_beside_their_images_are_the_truth(folders):
    predictions, masks = folders
    for path in sorted((masks / "a").iterdir()):
        path.rename(path.with_stem(f"{path.stem}_mask"))
        write_mask(path, np.arange(72, dtype=np.uint8).reshape(8, 9))
    assert compare_folders(predictions, masks)["mean_iou"] == 1


def test_two_masks_of_one_prediction_are_refused(folders):
    predictions, masks = folders
    write_mask(masks / "a" / "0_gt.png", np.zeros((8, 9), dtype=np.uint8))
    with pytest.raises(InputError, match=r"a/0: 2 masks \(a/0, a/0_gt\), expected one: remove the others"):
        compare_folders(predictions, masks)


def test_one_folder_is_not_scored_against_itself(folders):
    _, masks = folders
    with pytest.raises(InputError, match="given for predictions and true masks, so every score would be 1"):
        compare_folders(masks, masks / ".." / masks.name)


def test_values_of_one_class_are_scored_as_one(tmp_path):
    write_mask(tmp_path / "masks" / "a.png", np.array([[0, 2, 2, 0]], dtype=np.uint8))
    write_mask(tmp_path / "predictions" / "a.png", np.array([[0, 1, 1, 1]], dtype=np.uint8))
    labels = {0: "ground", 1: "cell", 2: "cell"}
    result = compare_folders(tmp_path / "predictions", tmp_path / "masks", labels=labels)
    assert result["object_iou"] == pytest.approx(2 / 3)
    assert [(entry["name"], entry["value"]) for entry in result["classes"]] == [("ground", 0), ("cell", 1)]
    assert result["notes"] == ["no firm estimate from 1 image: score 10 or more"]


def test_an_unlabelled_value_that_no_true_mask_holds_is_told(folders):
    notes = compare_folders(*folders, unlabelled=9)["notes"]
    assert notes[0] == "no true mask holds 9, the value of unlabelled pixels: every pixel is scored"
